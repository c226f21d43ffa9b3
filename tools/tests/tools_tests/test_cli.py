"""The command line: usage, one clear line per mistake, exit codes. Nothing here needs a cluster."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from waltz_admin import assignments, nodes, offline_copy, seeding, server_admin
from waltz_admin.replace import NodeReplacement, ReplaceResult
from waltz_cluster import zk_client
from waltz_cluster.config.settings import CliSettings
from waltz_cluster.errors import ConfigError
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint
from waltz_runtime.exit_code import ExitCode
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
from waltz_tools.cli.figures import counted
from waltz_tools.errors import DegradedError, UsageError
from waltz_tools.local.state import ClusterDirectory, ClusterState

GROUPS = {
    "explain": {"partition"},
    "local": {"up"},
    "zk": {
        "create", "delete", "list", "show-cluster-key", "add-storage-node", "remove-storage-node",
        "assign-partition", "unassign-partition", "auto-assign",
    },
    "storage": {
        "list", "add-partition", "remove-partition", "availability", "sync-partitions", "recover-partition",
        "max-transaction-id", "validate", "restore-reset", "forget", "usage", "replace",
    },
    "server": {"list", "add-preferred-partition", "remove-preferred-partition"},
    "cluster": {"verify", "check-connectivity", "status"},
    "client": {"validate", "create-producer", "create-consumer", "high-water-mark"},
    "perf": {"test-producers", "test-consumers"},
    "disk": {"dump-control-file", "dump-segment", "verify-segment", "segment-statistic", "check", "settle"},
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
    for command in ("append", "get", "tail", "top", "doctor", "console", "demo"):
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
        (["local", "up", "--partitions", "1000001"], "Input should be less than or equal to 1000000"),
        (["local", "up", "--servers", "99999999999"], "Input should be less than or equal to 1000"),
        (
            ["append", "-c", "CONFIG", "--lock", "account", "--data", "x"],
            "a lock is NAME:ID with a whole number",
        ),
        (["append", "-c", "CONFIG", "--data", "x", "--header", "2147483648"], "Invalid value for '--header'"),
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


def test_up_refuses_an_empty_name_and_a_directory_of_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.py").touch()
    monkeypatch.chdir(tmp_path)
    assert run(["local", "up", "--data", ""]) == ExitCode.USAGE
    assert "--data is empty" in _one_error(capsys)
    assert run(["local", "up", "--data", "."]) == ExitCode.FAILED
    assert f"{tmp_path} is not empty and holds no cluster" in _one_error(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--partitions", "4"], "holds a cluster of 8 partitions"),
        (
            ["--storage-nodes", "2"],
            "holds a cluster of 3 storage nodes and takes none away: leave --storage-nodes out",
        ),
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


@pytest.fixture
def zookeeper(monkeypatch: pytest.MonkeyPatch) -> MemoryZooKeeper:
    """A ZooKeeper in memory for every command, with a cluster of two partitions on one node per group."""
    memory = MemoryZooKeeper()

    async def connect(settings: CliSettings) -> MemoryStore:
        return memory.session()

    async def seed() -> None:
        store = memory.session()
        await seeding.create(store, "/nowhere", "demo", 2)
        for group, node in enumerate(("h1:6000", "h2:6000")):
            await nodes.add_storage_node(store, "/nowhere", node, 6001, group)
            await assignments.auto_assign(store, "/nowhere", group)
        await store.close()

    asyncio.run(seed())
    monkeypatch.setattr(zk_client, "connect", connect)
    return memory


def test_the_last_copy_of_a_group_is_given_up_only_when_told_to(
    zookeeper: MemoryZooKeeper, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["zk", "unassign-partition", "-c", str(config), "-s", "h1:6000", "-p", "0,1"]
    assert run(command) == ExitCode.FAILED
    assert "--drop-group-copy" in _one_error(capsys)
    assert run([*command, "--drop-group-copy"]) == 0
    assert capsys.readouterr().out == "unassigned 0,1 from h1:6000\n"


@pytest.mark.parametrize(
    ("answer", "row", "first"),
    [
        (
            "server a:1: cannot connect",
            ("UNREACHABLE", "server a:1: cannot connect"),
            "server a:1: cannot connect",
        ),
        ({"h1:6000": False}, ("h1:6000", None), "server a:1 does not reach h1:6000"),
    ],
)
def test_a_connection_that_is_broken_has_a_reason(
    answer: dict[str, bool] | str,
    row: tuple[str, str | None],
    first: str,
    zookeeper: MemoryZooKeeper,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def check(*_: object, **__: object) -> dict[Endpoint, dict[str, bool] | str]:
        return {Endpoint("a", 1): answer}

    monkeypatch.setattr(server_admin, "check_connectivity", check)
    assert run(["cluster", "check-connectivity", "-c", str(config), "--output", "json"]) == ExitCode.DEGRADED
    printed = capsys.readouterr()
    (shown,) = json.loads(printed.out)["connectivity"]
    assert (shown["storage_node"], shown["reached"], shown["reason"]) == (row[0], False, row[1])
    assert f"1 connection broken: {first}" in printed.err


def test_another_name_of_a_known_node_is_not_added(
    zookeeper: MemoryZooKeeper, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["zk", "add-storage-node", "-c", str(config), "-s", "H1:6000", "-a", "6001", "-g", "7"]
    assert run(command) == ExitCode.FAILED
    assert "is the storage node h1:6000, which is known already" in _one_error(capsys)
    command[command.index("H1:6000")] = "H3:6000"
    assert run(command) == 0
    assert capsys.readouterr().out == "added H3:6000 to group 7\n"


@pytest.mark.parametrize("dry_run", [False, True])
def test_replacing_a_node_that_is_not_known_is_no_success(
    dry_run: bool,
    zookeeper: MemoryZooKeeper,
    config: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def plan(self: NodeReplacement) -> list[str]:
        self.old_is_known = False
        return []

    async def execute(self: NodeReplacement) -> ReplaceResult:
        self.old_is_known = False
        return ReplaceResult((), 0, None)

    monkeypatch.setattr(NodeReplacement, "plan", plan)
    monkeypatch.setattr(NodeReplacement, "run", execute)
    command = [
        "storage",
        "replace",
        "-c",
        str(config),
        "--old",
        "a:1",
        "--new",
        "b:1",
        "--new-admin-port",
        "2",
    ]
    assert run([*command, "--dry-run" if dry_run else "--yes"]) == 0
    assert capsys.readouterr().out.startswith(
        "nothing to do: a:1 is not a storage node of the cluster (it was"
    )


def test_auto_assign_run_again_waits_for_what_the_group_has(
    zookeeper: MemoryZooKeeper,
    config: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first run may have ended before the change was complete."""
    waited: list[list[int]] = []

    async def wait(store: object, root: str, partitions: Iterable[int], **_: object) -> None:
        waited.append(list(partitions))

    monkeypatch.setattr("waltz_tools.cli.zk.wait_complete", wait)
    command = ["zk", "auto-assign", "-c", str(config), "-g", "1"]
    assert run([*command, "--wait", "30"]) == 0
    assert capsys.readouterr().out == "nothing to assign\n"
    assert run(command) == 0
    assert waited == [[0, 1]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("server.ssl:\n  keyStore.location: old.p12\n  keyStore.type: JKS\n", ("server.ssl", "old.p12")),
        ("ssl.keyStore.location: ours.p12\n", ("ssl", "ours.p12")),
        ("ssl.keyStore.location: ours.p12\nserver.ssl.keyStore.location: old.p12\n", ("ssl", "ours.p12")),
        (
            "zookeeper.connectString: z:1\ncluster.root: /x\nserver.port: 1\nserver.ssl.keyStore.location: o\n",
            ("server.ssl", "o"),
        ),
    ],
)
def test_zookeeper_6_21_a_file_for_one_side_needs_tls_keys_only(
    content: str,
    expected: tuple[str, str],
    zookeeper: MemoryZooKeeper,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Files of 0.13.2 have their keys below server.ssl."""
    seen: list[TlsSettings] = []

    async def copy(
        *_: object, source_tls: TlsSettings, destination_tls: TlsSettings, **__: object
    ) -> offline_copy.Progress:
        seen.extend((source_tls, destination_tls))
        return offline_copy.Progress(0, -1, -1)

    monkeypatch.setattr(offline_copy, "recover_partition", copy)
    own = config.with_name("one-side.yaml")
    own.write_text(content)
    command = [
        "storage",
        "recover-partition",
        "-c",
        str(config),
        "-s",
        "a:1",
        "-d",
        "b:1",
        "-dp",
        "2",
        "-p",
        "0",
    ]
    assert run([*command, "-sssl", str(own)]) == 0
    assert run([*command, "-dssl", str(own)]) == 0
    assert [(tls.prefix, tls.key_store) for tls in seen] == [expected, ("ssl", None), ("ssl", None), expected]


@pytest.mark.parametrize(
    "wrong", ["server.ssl.keyStore.locatoin", "ssl.keyStore.locatoin", "sll.keyStore.location"]
)
def test_a_file_for_one_side_with_an_unknown_key_is_one_line(
    wrong: str, zookeeper: MemoryZooKeeper, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = config.with_name("one-side.yaml")
    own.write_text(f"{wrong}: x\n")
    command = [
        "storage",
        "recover-partition",
        "-c",
        str(config),
        "-s",
        "a:1",
        "-d",
        "b:1",
        "-dp",
        "2",
        "-p",
        "0",
    ]
    assert run([*command, "-sssl", str(own)]) == ExitCode.FAILED
    assert f"unknown key {wrong}; did you mean" in capsys.readouterr().err


def test_demo_says_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--rows", "20000", "--no-tls"]) == ExitCode.USAGE
    assert "`make demo`" in _one_error(capsys)


@pytest.mark.parametrize(
    ("text", "ids"),
    [("0-6,7,10-12", [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12]), ("3", [3]), ("2, 1,2", [1, 2]), ("0-0", [0])],
)
def test_partition_ranges(text: str, ids: list[int]) -> None:
    assert parse_partitions(text) == ids


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "-1", "1-", "2-1", "1,,2", "1-9999999999", "1.5"),
        *("\u00b2", "0-\u00b2", "\u0663", "9" * 5000, "0-" + "9" * 5000),
    ],
)
def test_wrong_partition_ranges(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_partitions(text)
    assert len(str(raised.value)) < 200
    with pytest.raises(UsageError):
        parse_single_partition(text)


def test_errors_inside_groups_and_unforeseen_ones_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(ExceptionGroup("two", [ConfigError("the first\nof two"), ValueError("x")])) == ExitCode.FAILED
    assert _one_error(capsys) == "the first of two"
    assert show(DegradedError("half of it works")) == ExitCode.DEGRADED
    assert _one_error(capsys) == "half of it works"
    assert show(ZeroDivisionError("oh")) == ExitCode.INTERNAL
    assert _one_error(capsys) == "unexpected ZeroDivisionError: oh (WALTZ_DEBUG=1 shows where)"


def test_a_file_that_cannot_be_read_is_named_without_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["disk", "segment-statistic", str(tmp_path / "1.seg")]) == ExitCode.FAILED
    assert _one_error(capsys) == f"{tmp_path / '1.seg'}: No such file or directory"


def test_a_server_without_an_http_port_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["server", "list", "-s", "127.0.0.1:1"]) == ExitCode.FAILED
    assert _one_error(capsys) == "127.0.0.1:1: no metrics: Connection refused"


def test_addresses_are_text_in_tables_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """They are tuples inside."""
    server = Endpoint("h", 8000)
    listing = Listing("servers", "Servers", ["Server", "Known"])
    listing.add(server, (server, server))
    render_listings(OutputFormat.TABLE, [listing])
    assert "│ h:8000 │ h:8000,h:8000 │" in capsys.readouterr().out
    render_listings(OutputFormat.JSON, [listing])
    render_result(OutputFormat.JSON, "done", server=server)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"servers": [{"server": "h:8000", "known": ["h:8000", "h:8000"]}]},
        {"server": "h:8000"},
    ]


def test_one_finding_and_two_findings() -> None:
    assert [counted(number, "finding") for number in (0, 1, 2)] == ["0 findings", "1 finding", "2 findings"]


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
