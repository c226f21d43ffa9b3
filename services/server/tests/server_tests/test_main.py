"""The command: every mistake of an operator is one clear line and exit code 1, nothing is left half-done."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from waltz_admin import seeding
from waltz_cluster import zk_client
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams
from waltz_server.__main__ import main
from waltz_testkit.ports import free_port

ROOT = "/waltz"


@contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield int(holder.getsockname()[1])


def write(path: Path, **changes: object) -> str:
    keys: dict[str, object] = {
        "zookeeper.connectString": "127.0.0.1:1",
        "zookeeper.sessionTimeout": 2000,
        "zookeeper.connectTimeout": 300,
        "cluster.root": ROOT,
        "server.port": free_port(),
        "server.bind.host": "127.0.0.1",
        "server.ssl.allowUnverified": True,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    file = path / "server.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in keys.items() if value is not None}))
    return str(file)


class Memory:
    """In place of ZooKeeper: `prepare` runs on the loop of the server before it connects."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.create_root = True
        self.partitions_in_root: int | None = None

    async def connect(self, settings: ZooKeeperSettings) -> MemoryStore:
        store = self.zookeeper.session(2.0)
        if self.create_root:
            await seeding.create(store, ROOT, "test", 4)
        if self.partitions_in_root is not None:
            await store.set(ROOT, ClusterParams("test", self.partitions_in_root).to_bytes())
        return store

    def servers(self) -> list[str]:
        prefix = ClusterPaths(ROOT).server_descriptors + "/"
        return [path for path in self.zookeeper.tree() if path.startswith(prefix)]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made = Memory()
    monkeypatch.setattr(zk_client, "connect", made.connect)
    return made


def fails(capfd: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """Run the command; it must exit 1 with exactly one line that starts with Error."""
    assert main(arguments) == 1
    errors = [
        line
        for line in capfd.readouterr().err.splitlines()
        if "Traceback" in line or line.startswith("Error")
    ]
    assert len(errors) == 1
    assert errors[0].startswith("Error: ")
    return errors[0]


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0)])
def test_no_arguments_is_usage(arguments: list[str], code: int, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == code
    assert "usage: waltz-server CONFIG.yaml" in "".join(capfd.readouterr())


def test_missing_configuration_file(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "cannot read configuration file" in fails(capfd, [str(tmp_path / "none.yaml")])


def test_unknown_key(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = fails(capfd, [write(tmp_path, server__feedCacheSzie=1)])
    assert "unknown key server.feedCacheSzie; did you mean server.feedCacheSize?" in line


def test_missing_key(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "the key cluster.root is required" in fails(capfd, [write(tmp_path, cluster__root=None)])


def test_unreadable_key_file(capfd: pytest.CaptureFixture[str], tmp_path: Path, memory: Memory) -> None:
    config = write(tmp_path, server__ssl__keyStore__location=str(tmp_path / "none.pem"))
    line = fails(capfd, [config])
    assert "none.pem" in line
    assert "server.ssl.keyStore.location" in line
    assert memory.servers() == []


def test_unverified_storage_nodes_need_an_explicit_setting(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, memory: Memory
) -> None:
    line = fails(capfd, [write(tmp_path, server__ssl__allowUnverified=None)])
    assert "server.ssl.trustStore.location" in line
    line = fails(capfd, [write(tmp_path, storage__ssl__verifyHostName=False)])
    assert "storage.ssl.trustStore.location" in line


def test_zookeeper_absent(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "127.0.0.1:1" in fails(capfd, [write(tmp_path)])


def test_root_missing(capfd: pytest.CaptureFixture[str], tmp_path: Path, memory: Memory) -> None:
    memory.create_root = False
    assert "there is no cluster at /waltz" in fails(capfd, [write(tmp_path)])


def test_partition_count_mismatch(capfd: pytest.CaptureFixture[str], tmp_path: Path, memory: Memory) -> None:
    memory.partitions_in_root = 5
    assert "5 partitions, its store 4" in fails(capfd, [write(tmp_path)])
    assert memory.servers() == []


def test_client_server_13_06_port_in_use(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, memory: Memory
) -> None:
    with taken_port() as port:
        assert f"port {port} on 127.0.0.1 is already in use" in fails(
            capfd, [write(tmp_path, server__port=port)]
        )
    assert memory.servers() == []


def test_http_port_in_use(capfd: pytest.CaptureFixture[str], tmp_path: Path, memory: Memory) -> None:
    with taken_port() as port:
        assert f"127.0.0.1:{port} is already in use" in fails(
            capfd, [write(tmp_path, server__jetty__port=port)]
        )
    assert memory.servers() == []


def test_sigterm_leaves_in_order(capfd: pytest.CaptureFixture[str], tmp_path: Path, memory: Memory) -> None:
    port = free_port()
    failures: list[str] = []

    def terminate_when_ready() -> None:
        for _ in range(500):
            if memory.servers():
                break
            threading.Event().wait(0.01)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError as error:
            failures.append(str(error))
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=terminate_when_ready)
    watcher.start()
    code = main([write(tmp_path, server__port=port)])
    watcher.join()
    assert (code, failures) == (0, [])
    assert memory.servers() == []
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=2)
