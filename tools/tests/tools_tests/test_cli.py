"""The command line: usage, one clear line per mistake, exit codes. Nothing here needs a cluster."""

import json
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from waltz_cluster.errors import ConfigError
from waltz_tools.__main__ import run, show
from waltz_tools.cli.app import app
from waltz_tools.cli.common import (
    Listing,
    OutputFormat,
    parse_partitions,
    parse_single_partition,
    render_listings,
    render_result,
)
from waltz_tools.errors import DegradedError, ExitCode, UsageError
from waltz_tools.local.state import ClusterDirectory, ClusterState

GROUPS = {
    "local": {"up"},
    "zk": {
        "create", "delete", "list", "show-cluster-key", "add-storage-node", "remove-storage-node",
        "assign-partition", "unassign-partition", "auto-assign",
    },
    "storage": {
        "list", "add-partition", "remove-partition", "availability", "sync-partitions", "recover-partition",
        "max-transaction-id", "validate", "restore-reset", "forget",
    },
    "server": {"list", "add-preferred-partition", "remove-preferred-partition"},
    "cluster": {"verify", "check-connectivity"},
}  # fmt: skip


def _one_error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("Error: ")
    assert "Traceback" not in captured.err
    return lines[0].removeprefix("Error: ")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose ZooKeeper does not exist."""
    path = tmp_path / "client.yaml"
    path.write_text(
        "zookeeper.connectString: 127.0.0.1:1\nzookeeper.sessionTimeout: 1000\nzookeeper.connectTimeout: 300\n"
        "cluster.root: /nowhere\nclient.ssl.allowUnverified: true\n"
    )
    return path


def test_every_sub_command_has_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["--help"]).exit_code == 0
    for group, commands in GROUPS.items():
        listed = runner.invoke(app, [group, "--help"])
        assert listed.exit_code == 0
        for command in commands:
            assert command in listed.output
            answer = runner.invoke(app, [group, command, "--help"])
            assert answer.exit_code == 0, (group, command)
            assert "Usage: " in answer.output
    for command in ("append", "tail", "demo"):
        assert runner.invoke(app, [command, "--help"]).exit_code == 0
    assert get_command(app).name == "waltz"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["zk", "create"], "Missing option '--cli-config-path'"),
        (["zk", "lits"], "No such command 'lits'"),
        (["storage", "list", "--nonsense"], "No such option"),
        (["local", "up", "--storage-nodes", "0"], "Input should be greater than or equal to 1"),
        (["local", "up", "--partitions", "x"], "Invalid value for '--partitions'"),
        (["append", "-c", "CONFIG", "--lock", "account", "--data", "x"], "a lock is name:id"),
        (["tail", "-c", "CONFIG", "-p", "3-1"], "the range 3-1"),
        (
            ["storage", "availability", "-c", "CONFIG", "-s", "h:1", "-p", "1", "-o", "maybe"],
            "--online is true or false",
        ),
        (["storage", "add-partition", "-c", "CONFIG", "-s", "nohost", "-p", "1"], "nohost"),
        (["cluster", "verify", "-c", "CONFIG", "-p", "1,2"], "give one partition id"),
        (["storage", "forget", "-c", "CONFIG", "-s", "h:1", "-p", "1"], "--accept-data-loss"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str],
    words: str,
    config: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WALTZ_CONFIG", raising=False)
    code = run([str(config) if argument == "CONFIG" else argument for argument in arguments])
    assert words in _one_error(capsys)
    assert code == ExitCode.USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ["zk", "list"],
        ["zk", "show-cluster-key"],
        ["storage", "list"],
        ["cluster", "verify"],
        ["append", "--data", "x"],
        ["tail"],
    ],
)
def test_zookeeper_absent_is_one_line_and_exit_code_1(
    arguments: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "-c", str(config)]) == ExitCode.FAILED
    assert "127.0.0.1:1" in _one_error(capsys)


def test_configuration_mistakes_are_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["zk", "list", "-c", str(config.with_name("absent.yaml"))]) == ExitCode.FAILED
    assert "absent.yaml" in _one_error(capsys)
    config.write_text(config.read_text() + "zookeeper.conectString: x\n")
    assert run(["zk", "list", "-c", str(config)]) == ExitCode.FAILED
    assert "did you mean zookeeper.connectString?" in _one_error(capsys)


def test_configuration_file_may_come_from_the_environment(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALTZ_CONFIG", str(config))
    assert run(["zk", "list"]) == ExitCode.FAILED
    assert "127.0.0.1:1" in _one_error(capsys)


def test_up_refuses_a_directory_in_use_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ClusterDirectory(tmp_path)
    other.open()
    try:
        assert run(["local", "up", "--data", str(tmp_path)]) == ExitCode.FAILED
        assert "is in use by another `waltz local up`" in _one_error(capsys)
    finally:
        other.close()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--partitions", "4"], "holds a cluster of 8 partitions"),
        (["--storage-nodes", "2"], "holds a cluster of 3"),
    ],
)
def test_up_refuses_another_shape_with_one_line(
    option: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ClusterDirectory(tmp_path).save(
        ClusterState(partitions=8, tls=True, storage_nodes=3, servers=2, seeded=True)
    )
    assert run(["local", "up", "--data", str(tmp_path), *option]) == ExitCode.FAILED
    assert words in _one_error(capsys)


def test_restore_reset_of_what_is_no_storage_directory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["storage", "restore-reset", str(tmp_path)]) == ExitCode.FAILED
    assert str(tmp_path) in _one_error(capsys)


def test_demo_refuses_zero_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--rows", "0"]) == ExitCode.USAGE
    assert "greater than or equal to 1" in _one_error(capsys)


@pytest.mark.parametrize(
    ("text", "ids"),
    [("0-6,7,10-12", [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12]), ("3", [3]), ("2, 1,2", [1, 2]), ("0-0", [0])],
)
def test_partition_ranges(text: str, ids: list[int]) -> None:
    assert parse_partitions(text) == ids


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "2-1", "1,,2", "1-9999999999", "1.5"])
def test_wrong_partition_ranges(text: str) -> None:
    with pytest.raises(UsageError):
        parse_partitions(text)
    with pytest.raises(UsageError):
        parse_single_partition(text)


def test_errors_inside_groups_and_unforeseen_ones_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(ExceptionGroup("two", [ConfigError("the first\nof two"), ValueError("x")])) == ExitCode.FAILED
    assert _one_error(capsys) == "the first of two"
    assert show(DegradedError("half of it works")) == ExitCode.DEGRADED
    assert _one_error(capsys) == "half of it works"
    assert show(ZeroDivisionError("oh")) == ExitCode.FAILED
    assert _one_error(capsys) == "unexpected ZeroDivisionError: oh (WALTZ_DEBUG=1 shows where)"


def test_results_as_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    listing = Listing("nodes", "Nodes", ["Node", "Admin port"])
    listing.add("[bold]h:1[/bold]", None)
    render_listings(OutputFormat.TABLE, [listing])
    assert "[bold]h:1[/bold]" in capsys.readouterr().out
    render_listings(OutputFormat.JSON, [listing])
    assert json.loads(capsys.readouterr().out) == {
        "nodes": [{"node": "[bold]h:1[/bold]", "admin_port": None}]
    }
    render_result(OutputFormat.TABLE, "done", count=1)
    render_result(OutputFormat.JSON, "done", count=1)
    assert capsys.readouterr().out.splitlines() == ["done", '{"count": 1}']
