"""What a report of seeds prints, and in which order: the gravest kind first, within a kind what was seen
first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.sim import __main__ as program
from tests.sim.checkers.violation import GRAVITY, Violation, gravest_first
from tests.sim.cluster.result import Result
from tests.sim.cluster.world import Choice, World
from tests.sim.kernel.loop import collect_remains
from tests.sim.report import Report
from tests.sim.workloads.catalogue import chooser

NAME = re.compile(r"(?:Violation|violation|_?report)\(\s*\"(\w+)\"")
APPLICATIONS = {"bank", "registers", "counters", "duty"}

PROGRESS = Violation("progress", "partition 0 takes no appends")
ENDED = Violation("process_ended", "server-1 at 3.000: ended with KeyError: 3")
LOST = Violation("lost", "append 7 is not in the log")
LATER = Violation("acknowledged", "append 9 got 3, and is not there")
FORK = Violation("fork", "partition 0 transaction 3: two records")


def test_every_invariant_has_a_gravity() -> None:
    found: set[str] = set()
    for path in Path(__file__).parent.rglob("*.py"):
        if not path.name.startswith("test_"):
            found.update(NAME.findall(path.read_text(encoding="utf-8")))
    assert found | APPLICATIONS == {name for names in GRAVITY.values() for name in names}


def test_lost_and_diverged_come_before_liveness() -> None:
    assert gravest_first([PROGRESS, ENDED, FORK, LATER, LOST]) == [LATER, LOST, FORK, ENDED, PROGRESS]
    assert gravest_first([LOST, LATER]) == [LOST, LATER], "within a kind in the order of the run"
    harness = Violation("harness", "IndexError")
    assert gravest_first([LOST, harness])[0] is harness, "nothing else can be believed then"
    assert gravest_first([PROGRESS, Violation("new", "x")])[0].invariant == "new"


def test_a_report_names_the_gravest_of_a_seed_and_the_gravest_seed_first() -> None:
    report = Report(Choice())
    report.add(Result(3, violations=[PROGRESS]))
    report.add(Result(9, violations=[PROGRESS, PROGRESS, PROGRESS, ENDED, LOST]))
    lines = report.failures().splitlines()
    assert lines[0] == "seed 9: 5 violations"
    assert lines[1].strip() == str(LOST)
    assert lines[2].strip() == str(ENDED)
    assert [line for line in lines if line.startswith("seed ")] == [lines[0], "seed 3: 1 violations"]


def test_many_seeds_print_the_gravest_as_they_fail_and_the_failures_before_the_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def runs(*_: Any) -> list[Result]:
        return [Result(5, violations=[PROGRESS, LOST])]

    monkeypatch.setattr(program, "run_many", runs)
    assert program.main(["--seeds", "5:6"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"seed 5: {LOST}"
    assert printed.index("seed 5: 2 violations") < printed.index("seen")
    assert "seeds/s" in printed[-1]


def test_a_replay_prints_the_violations_before_the_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result(5, violations=[PROGRESS, LOST])
    result.counts["appends"] = 3
    monkeypatch.setattr(program, "run_seed", lambda *_: result)
    assert program.main(["--replay", "5"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [f"VIOLATION {LOST}", f"VIOLATION {PROGRESS}"]
    assert printed[2].split() == ["appends", "3"]


def test_what_was_seen_while_it_ran_comes_before_what_was_found_afterwards() -> None:
    worlds = [World(1, Choice(), chooser("default"))]  # the only reference to it
    worlds[0].violation("process_ended", "noticed by the world")
    worlds[0].history.report(LOST)
    worlds[0].violation("progress", "at the end")
    seen = [one.invariant for one in worlds[0].violations_as_seen()]
    collect_remains(worlds)
    assert seen == ["process_ended", "lost", "progress"]
