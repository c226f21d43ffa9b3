"""The runner, in short: a bug that is noticed, one that is not there, one that ends the process, and the exit
code."""

from __future__ import annotations

import pytest

from tests.sim.mutants.loader import ROOT, changed_sources
from tests.unit_mutants import run, survivors
from tests.unit_mutants.operators import generate
from tests.unit_mutants.planted.catalogue import PLANTED
from tests.unit_mutants.pool import Bug, Pool
from tests.unit_mutants.worker import Trial

VOTING = "services/server/src/waltz_server/store/voting.py"


def test_a_bug_is_noticed_where_it_is_and_nowhere_else() -> None:
    source = (ROOT / VOTING).read_text(encoding="utf-8")
    bugs = [
        Bug("planted", changed_sources(PLANTED["dead_voters_make_a_quorum"])),
        Bug("not there", {VOTING: source}),
        Bug("ends the process", {VOTING: f"{source}\nimport os\n\nos._exit(7)\n"}),
    ]
    with Pool(1, nearest_only=True) as pool:
        planted, nothing, ending = (trial for _, trial in run.try_all(pool, bugs))
        assert planted.by.startswith("services/server/tests/server_tests/store/test_voting.py::")
        assert nothing == Trial()
        assert ending.by == "the process ended with 7"
        never = pool.trials([bugs[0]], lambda: False)
        assert never[0].result() is None


def test_the_command_ends_with_1_when_a_survivor_is_not_argued_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bugs = generate(VOTING, (ROOT / VOTING).read_text(encoding="utf-8"))[:3]
    trials = [Trial(by="a::test"), Trial(), Trial(error="broken")]
    monkeypatch.setattr(run, "generated_bugs", lambda: bugs)
    monkeypatch.setattr(run, "try_all", lambda _pool, tried, *_: list(zip(tried, trials, strict=True)))
    monkeypatch.setattr(run, "Pool", lambda *_, **__: _NoPool())
    monkeypatch.setattr(run, "sample", lambda bugs, *_: list(bugs))
    monkeypatch.setattr(survivors, "known", dict)
    assert run.main(["--generated"]) == 1
    said = capsys.readouterr().out
    assert "1 of 3 generated bugs are noticed" in said
    assert said.count("not argued for") == 2
    trials[2] = Trial(by="b::test")
    monkeypatch.setattr(survivors, "known", lambda: {bugs[1].key: "Because.", bugs[2].key: "Because."})
    assert run.main(["--generated", "--all"]) == 0
    assert f"noticed by now, take it from the list: {bugs[2].key}" in capsys.readouterr().out


class _NoPool:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None
