"""The process: configuration, mistakes of the operator, start and orderly end."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

import waltz_storage.__main__ as program
from waltz_cluster.errors import ConfigError
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import StoreParams
from waltz_protocol.aio.storage_connection import StorageAdminConnection, StorageConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.types import Endpoint
from waltz_runtime.process import find_user_error
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.settings import StorageSettings
from waltz_testkit.ports import free_ports

from .support import KEY, OTHER_KEY

ROOT = "/waltz"


def configuration(directory: Path, **more: object) -> dict[str, object]:
    port, admin_port, http_port = free_ports(3)
    return {
        "storage.port": port,
        "storage.admin.port": admin_port,
        "storage.jetty.port": http_port,
        "storage.directory": str(directory),
        "storage.bind.host": "127.0.0.1",
        "zookeeper.connectString": "127.0.0.1:1",
        "zookeeper.sessionTimeout": 3000,
        "zookeeper.connectTimeout": 300,
        "cluster.root": ROOT,
        **more,
    }


def config_file(tmp_path: Path, values: dict[str, object]) -> str:
    path = tmp_path / "storage.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def data_directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


async def fake_store(_: object, params: StoreParams | None = StoreParams(KEY, 4)) -> MemoryStore:  # noqa: B008
    store = MemoryZooKeeper().session(10.0)
    if params is not None:
        await store.create(ClusterPaths(ROOT).store, params.to_bytes(), make_parents=True)
    return store


async def mistake(values: dict[str, object]) -> str:
    """Start the node to an error of the operator, as the process does; returns its one line."""
    try:
        await program.serve(StorageSettings.from_mapping(values), asyncio.Event())
    except Exception as failure:
        found = find_user_error(failure)
        if found is None:
            raise
        assert "\n" not in str(found)
        return str(found)
    raise AssertionError("it started")


def run_process(config: str) -> tuple[int, str]:
    """Exit code and standard error of a real process that is expected to end on its own."""
    command = [sys.executable, "-m", "waltz_storage", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.fixture
def in_memory_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "connect", fake_store)


def test_bad_input_zookeeper_absent(tmp_path: Path) -> None:
    config = config_file(tmp_path, configuration(data_directory(tmp_path)))
    code, errors = run_process(config)
    assert code == 1
    lines = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert "127.0.0.1:1" in lines[0]
    assert "Traceback" not in errors


async def test_bad_input_root_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "connect", lambda settings: fake_store(settings, None))
    assert "there is no store at /waltz/store" in await mistake(configuration(data_directory(tmp_path)))


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (StoreParams(OTHER_KEY, 4), "belongs to another cluster"),
        (StoreParams(KEY, 5), "made for 4 partitions, ZooKeeper has 5"),
    ],
)
async def test_bad_input_wrong_key_or_partition_count(
    params: StoreParams, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = data_directory(tmp_path)
    StorageManager.open(str(directory), cluster_key=KEY, num_partitions=4, now_ms=lambda: 0).close()
    before = (directory / "waltz-storage.ctl").read_bytes()
    monkeypatch.setattr(program, "connect", lambda settings: fake_store(settings, params))
    assert text in await mistake(configuration(directory))
    assert (directory / "waltz-storage.ctl").read_bytes() == before


@pytest.mark.parametrize("arguments", [[], ["--nonsense"], ["a.yaml", "b.yaml"]])
def test_bad_input_command_line_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(arguments)
    lines = capsys.readouterr().err.splitlines()
    assert (ended.value.code, len(lines)) == (2, 1)
    assert lines[0].startswith("Error: ")
    assert "usage: waltz-storage CONFIG.yaml" in lines[0]


@pytest.mark.usefixtures("in_memory_zookeeper")
async def test_bad_input_directory_missing(tmp_path: Path) -> None:
    assert "no such directory" in await mistake(configuration(tmp_path / "nowhere"))


@pytest.mark.usefixtures("in_memory_zookeeper")
async def test_bad_input_directory_not_writable(tmp_path: Path) -> None:
    directory = data_directory(tmp_path)
    directory.chmod(0o555)
    if os.access(directory, os.W_OK):  # root may write anywhere: a file in its place says the same
        directory = tmp_path / "data" / "waltz-storage.ctl"
        directory.mkdir()
        directory = directory.parent
    line = await mistake(configuration(directory))
    assert str(directory) in line
    assert "Permission denied" in line or "Is a directory" in line


@pytest.mark.usefixtures("in_memory_zookeeper")
async def test_bad_input_directory_in_use(tmp_path: Path) -> None:
    directory = data_directory(tmp_path)
    script = (
        "import fcntl,sys,time;f=open(sys.argv[1],'a+b');fcntl.lockf(f,fcntl.LOCK_EX,128,0,0);print('held',flush=True);"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(directory / "waltz-storage.ctl")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        line = await mistake(configuration(directory))
        holder.communicate()
    assert "another process is using this directory" in line


@pytest.mark.usefixtures("in_memory_zookeeper")
@pytest.mark.parametrize("which", ["storage.port", "storage.admin.port", "storage.jetty.port"])
async def test_bad_input_port_in_use(which: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        values = configuration(data_directory(tmp_path)) | {which: port}
        line = await mistake(values)
    assert str(port) in line
    assert "in use" in line
    # The directory is free again.
    StorageManager.open(str(tmp_path / "data"), cluster_key=KEY, num_partitions=4, now_ms=lambda: 0).close()


@pytest.mark.usefixtures("in_memory_zookeeper")
async def test_bad_input_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from waltz_storage.engine.files import OsFile

    def full(self: OsFile, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(OsFile, "pwrite", full)
    assert "No space left on device" in await mistake(configuration(data_directory(tmp_path)))


async def test_bad_input_configuration(tmp_path: Path) -> None:
    good = configuration(data_directory(tmp_path))
    cases: list[tuple[dict[str, object], str]] = [
        ({"storage.prot": 1}, "unknown key storage.prot; did you mean storage.port?"),
        ({"storage.port": good["storage.admin.port"]}, "must differ"),
        ({"storage.bind.host": "all..hosts"}, "storage.bind.host = 'all..hosts': this is no host name"),
        ({"storage.graphite.hostname": "a" * 64}, "this is no host name"),
        ({"storage.port": 0}, "storage.port"),
        ({"storage.directory": None}, "storage.directory is required"),
        ({"cluster.root": "waltz"}, "cluster.root"),
        ({"storage.segment.size.threshold": "many"}, "storage.segment.size.threshold"),
    ]
    for change, text in cases:
        assert text in await mistake(good | change)
    code, errors = run_process(str(tmp_path / "nowhere.yaml"))
    assert code == 1
    assert "nowhere.yaml" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.usefixtures("in_memory_zookeeper")
async def test_bad_input_unreadable_key_file(tmp_path: Path) -> None:
    values = configuration(data_directory(tmp_path)) | {
        "storage.ssl.keyStore.location": str(tmp_path / "no.pem")
    }
    assert "storage.ssl.keyStore.location" in await mistake(values)


def test_safety_f1_all_keys_of_0_13_2_are_accepted(tmp_path: Path) -> None:
    values: dict[str, object] = {
        "storage.port": "18080",
        "storage.admin.port": 18081,
        "storage.jetty.port": 18082,
        "storage.directory": str(tmp_path),
        "storage.segment.size.threshold": "1000",
        "storage.segment.cache.capacity": 7,
        "zookeeper.connectString": "zk:2181",
        "zookeeper.sessionTimeout": "30000",
        "cluster.root": "/waltz",
        "storage.ssl.keyStore.location": "k",
        "storage.ssl.keyStore.password": "p",
        "storage.ssl.keyStore.type": "JKS",
        "storage.ssl.trustStore.location": "t",
        "storage.ssl.trustStore.password": "p",
        "storage.ssl.trustStore.type": "JKS",
        "storage.ssl.keyManager.algorithm": "SunX509",
        "storage.ssl.trustManager.algorithm": "SunX509",
        "storage.graphite.hostname": "graphite",
        "storage.graphite.port": 2003,
        "storage.graphite.prefix": "waltz",
        "storage.graphite.reportIntervalMs": 60,
        "storage.graphite.useUdp": "false",
    }
    settings = StorageSettings.from_mapping(values)
    assert settings.port == 18080
    assert settings.engine() == (1000, 7)
    assert settings.graphite().interval_seconds == 60
    assert settings.tls_settings("storage.ssl").trust_store == "t"
    for key in values:
        with pytest.raises(ConfigError, match="unknown key"):
            StorageSettings.from_mapping(values | {key + "x": 1})


@asynccontextmanager
async def serving(settings: StorageSettings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(program.serve(settings, stop))
        while not task.done():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", settings.admin_port)
                writer.close()
                await writer.wait_closed()
                break
            except OSError:
                await asyncio.sleep(0.01)
        try:
            yield
        finally:
            stop.set()


@pytest.mark.usefixtures("in_memory_zookeeper")
async def test_safety_f2_node_with_default_tls_serves_and_stops_in_order(tmp_path: Path) -> None:
    """TLS with a fresh certificate, as 0.13.2; data is there after an orderly end and a second start."""
    settings = StorageSettings.from_mapping(configuration(data_directory(tmp_path)))
    tls = client_context(TlsSettings(allow_unverified=True))
    data_port, admin_port = Endpoint("127.0.0.1", settings.port), Endpoint("127.0.0.1", settings.admin_port)
    async with serving(settings):
        tool = await StorageAdminConnection.open(admin_port, cluster_key=KEY, num_partitions=4, tls=tls)
        await tool.assign([1], True)
        process_id = tool.process_id
        tool.close()
        server = await StorageConnection.open(data_port, cluster_key=KEY, num_partitions=4, tls=tls)
        assert server.process_id == process_id is not None
        await server.last_session_info(3, 1)
        await server.set_low_water_mark(3, 1, -1)
        server.close()
    async with serving(settings):
        server = await StorageConnection.open(data_port, cluster_key=KEY, num_partitions=4, tls=tls)
        assert (await server.last_session_info(3, 1)).session_id == 3
        assert server.process_id not in {None, process_id}, "each start is a process of its own"
        server.close()


@pytest.mark.usefixtures("in_memory_zookeeper")
async def test_an_error_that_nobody_foresaw_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Exception] = []
    monkeypatch.setattr(program, "end_at_once", ended.append)
    monkeypatch.setattr(StorageManager, "unmade", property(lambda _manager: 1 // 0))
    values = configuration(data_directory(tmp_path))
    with pytest.raises(ExceptionGroup):
        await program.serve(StorageSettings.from_mapping(values), asyncio.Event())
    assert list(map(type, ended)) == [ZeroDivisionError]
