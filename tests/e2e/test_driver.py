"""What the end-to-end run says where it cannot run, and how its table looks."""

from pathlib import Path

import pytest

from tests.e2e import __main__, kind
from tests.e2e.report import Result, table
from tests.e2e.scenarios import ALL
from tests.e2e.shell import CommandError


def test_without_kind_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == "kind" else name)
    assert __main__.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "make e2e needs docker, kind, kubectl on PATH; missing: kind"
    ]


def test_the_table_has_a_line_per_scenario_and_says_what_failed() -> None:
    text = table(
        [
            Result("one", 12.3, 400, 0, 0.25, 2, ["a note"]),
            Result("two", 1.0, failure="Timeout: x"),
        ]
    ).splitlines()
    assert text[2].split() == ["one", "12", "s", "400", "0", "0.25", "s", "2", "a", "note"]
    assert text[3].startswith("two (FAILED)")
    assert text[4] == "FAILED two: Timeout: x"


def test_names_of_scenarios_are_unique() -> None:
    names = [scenario.name for scenario in ALL]
    assert len(set(names)) == len(names)


def test_a_cluster_that_cannot_be_deleted_is_no_failure_of_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[str] = []

    def refuse(command: list[str], **_: object) -> str:
        asked.append(command[1])
        if command[1] == "delete":
            raise CommandError("docker did not kill it")
        return ""

    monkeypatch.setattr(kind, "run", refuse)
    monkeypatch.setattr(kind, "_PAUSE_SECONDS", 0.0)
    with kind.cluster(tmp_path, keep=False, reuse=False):
        pass
    assert asked.count("delete") == 3
    assert "docker did not kill it" in capsys.readouterr().err
