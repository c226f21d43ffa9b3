"""A person's mistakes with `waltz zk export`, `import` and `rebuild`: one line each."""

import asyncio
import os
import socket
import stat
import threading
import tty
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tools_tests.test_cli import _one_error, config, zookeeper  # noqa: F401
from waltz_admin import nodes, seeding
from waltz_admin.errors import AdminError
from waltz_admin.rebuild_tree import ClusterGiven, RebuiltTree
from waltz_admin.tree_file import decode
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import (
    ClusterParams,
    ConnectionMetadata,
    Counter,
    GroupDescriptor,
    ReplicaAssignments,
)
from waltz_protocol.types import PartitionId
from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run
from waltz_tools.cli import zk_tree

KEY = "00000000-0000-0000-0000-000000000001"
REBUILD = ["zk", "rebuild", "-n", "d", "-k", KEY, "-p", "1", "--copies", "1", "--yes"]
CONFIG = """\
zookeeper.connectString: nowhere:1
cluster.root: {root}
ssl.enabled: false
"""


@pytest.mark.parametrize("file", [".", "/", ".."])
def test_export_to_a_directory(
    file: str,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["zk", "export", "-c", str(config), file]) == ExitCode.FAILED
    assert "is a directory" in _one_error(capsys)


@pytest.mark.parametrize("content", [b"[" * 200_000, b"\xff\xfe\x00", b"{}", b"null", b'{"format": NaN}'])
def test_import_of_odd_files(
    content: bytes,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "odd.json"
    file.write_bytes(content)
    assert run(["zk", "import", "-c", str(config), str(file), "--yes"]) == ExitCode.FAILED
    assert "is no export of a cluster" in _one_error(capsys)


@pytest.mark.parametrize("root", ["/empty", "/nowhere"])
@pytest.mark.parametrize(
    "node",
    [
        "127.0.0.1:7000/70011/1",
        "127.0.0.1:7000/65536/1",
        "127.0.0.1:7000/0/1",
        "127.0.0.1:7000/7\u00b2/1",
        "127.0.0.1:7000/7001/-1",
        "127.0.0.1:7000/7001/99999999999",
        "127.0.0.1:7000/7001/9999999999",
        "127.0.0.1:7000/99999999/1",
    ],
)
def test_rebuild_with_a_typing_error(
    node: str,
    root: str,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where nothing is, and where a cluster is."""
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(root=root))
    assert run([*REBUILD, "-c", str(file), "--node", node]) == ExitCode.USAGE
    said = _one_error(capsys)
    assert "--node" in said
    assert "--lost" not in said, "a typing error must not become a lost disk"


@pytest.mark.parametrize("root", ["/", "/nowhere/", "/none", "/none/deeper", "nowhere", "//nowhere"])
def test_export_of_odd_roots(
    root: str,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(root=root))
    assert run(["zk", "export", "-c", str(file), str(tmp_path / "out.json")]) != ExitCode.OK
    assert "unexpected" not in capsys.readouterr().err


@pytest.mark.parametrize("number", ["\u0663", "9" * 5000])
def test_rebuild_with_what_only_some_take_for_a_number(
    number: str,
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    for node in (f"127.0.0.1:7000/{number}/1", f"127.0.0.1:7000/7001/{number}"):
        assert run([*REBUILD, "-c", str(config), "--node", node]) == ExitCode.USAGE
        said = _one_error(capsys)
        assert "--node is HOST:PORT/ADMIN_PORT/GROUP, not '127.0.0.1" in said
        assert len(said) < 200


def test_rebuild_and_create_with_a_name_that_is_no_text(
    zookeeper: MemoryZooKeeper,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(root="/new"))
    rebuild = ["zk", "rebuild", "-n", "\udcff", "-k", KEY, "-p", "1", "--copies", "1", "--yes"]
    for argv in (["zk", "create", "-n", "\udcff", "-p", "2"], [*rebuild, "--node", "h:7000/7001/1"]):
        assert run([*argv, "-c", str(file)]) == ExitCode.FAILED
        assert _one_error(capsys) == "the name of a cluster must be UTF-8 text"


def test_import_does_not_wait_for_the_writer_of_a_pipe(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for odd in (pipe, tmp_path, Path("/dev/null")):
        assert run(["zk", "import", "-c", str(config), str(odd), "--yes"]) == ExitCode.FAILED
        assert _one_error(capsys) == f"{odd} cannot be read: it is not a file"


def test_import_of_a_pipe_that_the_shell_has_opened(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, config = tmp_path / "tree.json", tmp_path / "c.yaml"  # noqa: F811
    config.write_text(CONFIG.format(root="/nowhere"))
    assert run(["zk", "export", "-c", str(config), str(file)]) == ExitCode.OK
    reading, writing = os.pipe()
    with open(reading, "rb"):
        with open(writing, "wb") as opened:
            opened.write(file.read_bytes())
        assert run(["zk", "import", "-c", str(config), f"/dev/fd/{reading}", "--yes"]) == ExitCode.OK
    assert "demo is there already, exactly like this" in capsys.readouterr().out


def test_two_exports_to_one_file_at_once_do_not_meet(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one ends badly, at any moment of its own, while the first is being synced."""
    file, real = tmp_path / "tree.json", os.fsync
    argv = ["zk", "export", "-c", str(config), str(file)]
    assert run(argv) == ExitCode.OK
    content = file.stat().st_size

    def full(_: int) -> None:
        parts.append(len(list(tmp_path.glob(".*.part"))))
        raise OSError(28, "No space left on device")

    def slow(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", full)
        second = threading.Thread(target=lambda: ends.append(run(argv)))
        second.start()
        second.join()
        monkeypatch.setattr(os, "fsync", real)
        real(descriptor)

    ends: list[int] = []
    parts: list[int] = []
    monkeypatch.setattr(os, "fsync", slow)
    assert run(argv) == ExitCode.OK
    assert (ends, parts) == ([ExitCode.FAILED], [2])
    assert file.stat().st_size == content
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(tmp_path.iterdir()) == [config, file]


def test_an_export_is_reported_when_its_directory_is_on_the_disk_too(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, synced, real = tmp_path / "tree.json", [], os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), file.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert run(["zk", "export", "-c", str(config), str(file)]) == ExitCode.OK
    assert synced == [(False, False), (True, True)]


def test_an_export_names_the_clusters_that_it_leaves_out(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def nest() -> None:
        store = zookeeper.session()
        for path in ("/nowhere/inner", "/nowhere/inner/store"):
            await store.create(path, ClusterParams("inner", 1).to_bytes())
        await store.close()

    asyncio.run(nest())
    file = tmp_path / "tree.json"
    assert run(["zk", "export", "-c", str(config), str(file)]) == ExitCode.OK
    assert "left out: other clusters below its root, at /inner (export each" in capsys.readouterr().out
    assert "inner" not in file.read_text()


def _number(year: int) -> int:
    return int((datetime(year, 1, 1, tzinfo=UTC) - datetime(2020, 1, 1, tzinfo=UTC)).total_seconds())


@pytest.mark.parametrize(
    ("there", "taken"), [(_number(2026) + 7, True), (7, False), (_number(2025), False), (2**31 - 1, False)]
)
def test_a_rebuild_that_is_run_again_takes_the_number_of_the_first_run(
    there: int,
    taken: bool,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But none that no clock can have given."""
    root, given = "/begun", list[ClusterGiven]()

    async def begin() -> None:
        store, paths = zookeeper.session(), ClusterPaths(root)
        await seeding.create(store, root, "d", 1)
        for path in (paths.client_ids, paths.server_ids):
            await store.set(path, Counter(there).to_bytes())
        await store.close()

    async def rebuild_tree(asked: ClusterGiven, *_: object, **__: object) -> RebuiltTree:
        given.append(asked)
        raise AdminError("enough")

    asyncio.run(begin())
    monkeypatch.setattr(zk_tree, "rebuild_tree", rebuild_tree)
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(root=root))
    assert run([*REBUILD, "-c", str(file), "--node", "s:1/2/3"]) == ExitCode.FAILED
    assert (given[0].first_number == there) is taken
    assert _number(2026) <= given[0].first_number < 2**31 - 1


@pytest.fixture
def config_and_tree(
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
) -> tuple[Path, bytes]:
    """The configuration, and what an export to a file writes."""
    file = tmp_path / "expected.json"
    assert run(["zk", "export", "-c", str(config), str(file)]) == ExitCode.OK
    return config, file.read_bytes()


def _same_tree(content: bytes, expected: bytes) -> bool:
    return decode(content).same_as(decode(expected))


def test_export_into_a_pipe(config_and_tree: tuple[Path, bytes], tmp_path: Path) -> None:
    config, expected = config_and_tree  # noqa: F811
    pipe, link, got = tmp_path / "pipe", tmp_path / "link", list[bytes]()
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for name in (pipe, link):
        opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(opened, True)
        assert run(["zk", "export", "-c", str(config), str(name)]) == ExitCode.OK
        with open(opened, "rb") as reader:
            got.append(reader.read())
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert all(_same_tree(one, expected) for one in got)


def test_export_into_a_pipe_that_nobody_reads(
    config_and_tree: tuple[Path, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    capsys.readouterr()
    assert run(["zk", "export", "-c", str(config_and_tree[0]), str(pipe)]) == ExitCode.FAILED
    assert _one_error(capsys).startswith(f"{pipe} cannot be written: ")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_export_into_a_device(config_and_tree: tuple[Path, bytes], tmp_path: Path) -> None:
    """A terminal: where it is listed nobody can put a file in its place, not even a broken export."""
    config, expected = config_and_tree  # noqa: F811
    master, slave = os.openpty()
    tty.setraw(slave)
    link, got = tmp_path / "terminal", list[bytes]()
    link.symlink_to(os.ttyname(slave))

    def read() -> None:
        while sum(map(len, got)) < len(expected):
            got.append(os.read(master, 4096))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert run(["zk", "export", "-c", str(config), str(link)]) == ExitCode.OK
        reader.join(30)
        assert _same_tree(b"".join(got), expected)
    finally:
        os.close(slave)
        os.close(master)
    assert link.is_symlink()


def test_export_to_what_a_link_leads_to(config_and_tree: tuple[Path, bytes], tmp_path: Path) -> None:
    config, expected = config_and_tree  # noqa: F811
    link, file = tmp_path / "latest.json", tmp_path / "first.json"
    link.symlink_to(file.name)
    for _ in range(2):  # where nothing is yet, and over what is there
        assert run(["zk", "export", "-c", str(config), str(link)]) == ExitCode.OK
        assert link.is_symlink()
        assert _same_tree(file.read_bytes(), expected)
        file.write_bytes(b"older")


def test_export_to_a_socket_is_refused(
    config_and_tree: tuple[Path, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    capsys.readouterr()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        assert run(["zk", "export", "-c", str(config_and_tree[0]), "socket"]) == ExitCode.FAILED
    assert "is no file, pipe or character device" in _one_error(capsys)
    assert stat.S_ISSOCK(Path("socket").stat().st_mode)


def test_the_names_of_what_is_open_already() -> None:
    """Not tried out: a broken export would replace them on this machine."""
    names = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2, "/dev/null": None}
    assert {name: zk_tree._opened_already(Path(name)) for name in names} == names


@pytest.mark.parametrize("name", ["/dev/fd/1", "/proc/self/fd/1"])
def test_export_to_standard_output_has_nothing_else_in_it(
    name: str, config_and_tree: tuple[Path, bytes], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    config, expected = config_and_tree  # noqa: F811
    capfdbinary.readouterr()
    assert run(["zk", "export", "-c", str(config), name]) == ExitCode.OK
    assert _same_tree(capfdbinary.readouterr().out, expected)


@pytest.mark.parametrize("host", ["a..b", "s1 ", "s\t1", "x" * 70, ".", "s1\u200b"])
def test_what_is_no_host_name_does_not_become_a_storage_node(
    host: str,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    add = ["zk", "add-storage-node", "-c", str(config), "-a", "7001", "-g", "1", "-s", f"{host}:7000"]
    assert run(add) == ExitCode.USAGE
    assert "is no host name" in _one_error(capsys)
    assert run([*REBUILD, "-c", str(config), "--node", f"{host}:7000/7001/1"]) == ExitCode.USAGE
    assert "is no host name" in _one_error(capsys)
    replace = ["storage", "replace", "-c", str(config), "--old", "s1:7000", "--new", f"{host}:7000"]
    assert run([*replace, "--new-admin-port", "7001", "--yes"]) == ExitCode.USAGE
    assert "is no host name" in _one_error(capsys)


@pytest.mark.parametrize("host", ["s_1", "[::1]", "10.0.0.1", "b\u00fccher.example", "s1.example."])
def test_what_is_a_host_name_becomes_one(
    host: str,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
) -> None:
    add = ["zk", "add-storage-node", "-c", str(config), "-a", "7001", "-g", "1", "-s", f"{host}:7000"]
    assert run(add) == ExitCode.OK


def test_a_storage_node_with_an_impossible_name_can_be_removed(
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
) -> None:
    async def add() -> None:
        store = zookeeper.session()
        await nodes.add_storage_node(store, "/nowhere", "a..b:7000", 7001, 1)
        await store.close()

    asyncio.run(add())
    assert run(["zk", "remove-storage-node", "-c", str(config), "-s", "a..b:7000"]) == ExitCode.OK


@pytest.mark.parametrize(
    "name", ["127.0.0.1:70000", "127.0.0.1:0", "127.0.0.1", "127.0.0.1:07000", " 127.0.0.1:7000"]
)
def test_a_storage_node_whose_name_is_no_address_is_named_and_removed(
    name: str,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another tool has written it."""

    async def add() -> None:
        store, paths = zookeeper.session(), ClusterPaths("/nowhere")
        await store.set(paths.group, GroupDescriptor({name: 9}).to_bytes())
        await store.set(paths.assignment, ReplicaAssignments({name: (PartitionId(0),)}).to_bytes())
        await store.set(paths.connection, ConnectionMetadata({name: 3}).to_bytes())
        await store.close()

    asyncio.run(add())
    config.write_text(CONFIG.format(root="/nowhere"))
    at = ["-c", str(config)]
    no_address = name in ("127.0.0.1:70000", "127.0.0.1:0", "127.0.0.1")
    for command in (
        (["storage", "list"], ["storage", "validate"], ["doctor", "-t", "2"]) if no_address else ()
    ):
        assert run([*command, *at, "--output", "json"]) == ExitCode.DEGRADED, capsys.readouterr()
        out, err = capsys.readouterr()
        assert f"'{name}'" in out + err
        assert "waltz zk remove-storage-node" in out + err, command
    assert run(["zk", "add-storage-node", *at, "-s", "127.0.0.1:1", "-a", "2", "-g", "1"]) == ExitCode.OK
    assert run(["zk", "unassign-partition", *at, "-s", name, "-p", "0", "--drop-group-copy"]) == ExitCode.OK
    capsys.readouterr()
    assert run(["zk", "remove-storage-node", *at, "-s", name]) == ExitCode.OK
    assert f"removed {name}" in capsys.readouterr().out
    assert run(["zk", "remove-storage-node", *at, "-s", "127.0.0.2"]) == ExitCode.USAGE
    assert "is not an address of the form host:port" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["2147483648", "99999999999", "-1"])
def test_a_group_that_no_znode_can_hold(
    group: str,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    config: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    add = ["zk", "add-storage-node", "-c", str(config), "-a", "7001", "-s", "s:7000", "-g", group]
    assert run(add) == ExitCode.USAGE
    assert _one_error(capsys) == "the group in --group is a number from 0 to 2147483647"


@pytest.mark.parametrize("partitions", ["1000001", "2147483647", "2147483648"])
def test_more_partitions_than_can_be_listed(
    partitions: str,
    tmp_path: Path,
    zookeeper: MemoryZooKeeper,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(root="/new"))
    assert run(["zk", "create", "-c", str(file), "-n", "d", "-p", partitions]) == ExitCode.FAILED
    assert _one_error(capsys) == f"the number of partitions must be 0 to 1000000, not {partitions}"
