"""What the operator sees and makes of a real ZooKeeper: whether it serves, that its data were lost, and an
ensemble that grows member by member while it is written to."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from operator_tests.resources.clusters import cluster
from waltz_admin.found_tree import NoTree
from waltz_admin.seeding import create
from waltz_admin.view import ClusterView, probe
from waltz_cluster.errors import ClusterError, NodeExistsError, StoreError
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_operator.api.topology import ZOOKEEPER_PORT
from waltz_operator.resources.zookeeper import SERVES, render_config
from waltz_operator.run import zookeeper_sessions
from waltz_operator.run.zookeeper_sessions import Ensemble, Ensembles
from waltz_protocol.aio.tasks import spawn
from waltz_testkit.ports import free_ports
from waltz_testkit.zookeeper import EmbeddedZooKeeper, find_jars, find_java

OWNER = ("n", "c")


def serves(port: int) -> bool:
    """The readiness probe, on another port."""
    command = SERVES.replace(str(ZOOKEEPER_PORT), str(port))
    return subprocess.run(["sh", "-c", command], check=False, timeout=30, capture_output=True).returncode == 0


def test_a_server_is_ready_only_when_it_serves(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as zookeeper:
        port, deadline = zookeeper.port, time.monotonic() + 30
        while not serves(port):  # it answers `ruok` before it serves
            assert time.monotonic() < deadline
    assert not serves(port)


@pytest.mark.long
async def test_lost_data_are_seen_without_a_restart_of_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ZooKeeper with less than a session has seen refuses that session, whatever time passes."""
    monkeypatch.setattr(zookeeper_sessions, "REPLACE_SECONDS", 1.0)
    zookeeper = EmbeddedZooKeeper(tmp_path / "zk")
    ensembles = Ensembles(patience_seconds=5.0)
    there = Ensemble(zookeeper.connect_string, "/waltz")
    try:
        await asyncio.to_thread(zookeeper.start)
        store = await ensembles.store(OWNER, there)
        await create(store, "/waltz", "c", 1)
        assert isinstance(await probe(store, "/waltz"), ClusterView)
        await asyncio.to_thread(zookeeper.kill)
        shutil.rmtree(tmp_path / "zk" / "version-2")
        await asyncio.to_thread(zookeeper.start)
        async with asyncio.timeout(20.0):
            while True:
                try:
                    found = await probe(await ensembles.store(OWNER, there), "/waltz")
                    break
                except ClusterError:
                    await asyncio.sleep(0.2)  # as a pass that is planned again
        assert isinstance(found, NoTree)
    finally:
        await ensembles.close()
        await asyncio.to_thread(zookeeper.stop)


class Members:
    """Servers of an ensemble on the loopback address, with the configuration that the operator renders."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = free_ports(9)
        self.ports = [ports[3 * n : 3 * n + 3] for n in range(3)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def connect_string(self) -> str:
        return ",".join(f"127.0.0.1:{client}" for client, *_ in self.ports)

    def start(self, number: int, members: int) -> None:
        """As its pod does when its template has that number of members."""
        data = self._directory / str(number)
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{number + 1}\n")
        text = render_config(cluster({"zookeeper": {"managed": {"replicas": 3}}}), members)
        text = text.replace("/var/lib/zookeeper", str(data)).replace("=2181", f"={self.ports[number][0]}")
        for one, (_, peer, election) in enumerate(self.ports, start=1):
            text = re.sub(rf"server\.{one}=.*", f"server.{one}=127.0.0.1:{peer}:{election}", text)
        config = data / f"zoo-{members}.cfg"
        config.write_text(text)
        command = [find_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
        command += [":".join(find_jars()), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
        with (data / "log").open("ab") as log:
            self._running[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, number: int) -> None:
        process = self._running.pop(number)
        process.terminate()
        process.wait(30)

    def wait(self, number: int) -> None:
        """Until the readiness probe passes."""
        deadline = time.monotonic() + 60
        while not serves(self.ports[number][0]):
            assert time.monotonic() < deadline, (self._directory / str(number) / "log").read_text()[-3000:]

    def restart(self, number: int, members: int) -> None:
        self.stop(number)
        self.start(number, members)
        self.wait(number)


@contextlib.contextmanager
def members(directory: Path) -> Iterator[Members]:
    found = Members(directory)
    try:
        yield found
    finally:
        for number in list(found._running):
            found.stop(number)


async def write(store: ZooKeeperStore, acknowledged: list[str], stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        with contextlib.suppress(StoreError, NodeExistsError):
            await store.create(f"/n{number:06}", b"")
            acknowledged.append(f"n{number:06}")
        await asyncio.sleep(0.01)


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_an_ensemble_grows_member_by_member_and_loses_nothing(tmp_path: Path) -> None:
    """In the order of `plan.zookeeper_restarts`: the new one, then the others from the highest number."""
    with members(tmp_path) as found:
        found.start(0, 1)
        await asyncio.to_thread(found.wait, 0)
        ensemble = Ensemble(found.connect_string, "/c")
        store = await connect(ensemble.settings())
        acknowledged: list[str] = []
        stop = asyncio.Event()
        writing = spawn(write(store, acknowledged, stop), "writing")
        try:
            for wanted in (2, 3):
                before = len(acknowledged)
                found.start(wanted - 1, wanted)
                if wanted > 2:  # beside a single server, which knows no ensemble, it serves nobody
                    await asyncio.to_thread(found.wait, wanted - 1)
                for number in reversed(range(wanted - 1)):
                    await asyncio.to_thread(found.restart, number, wanted)
                for number in range(wanted):
                    await asyncio.to_thread(found.wait, number)
                async with asyncio.timeout(30):
                    while len(acknowledged) <= before:
                        await asyncio.sleep(0.05)
            stop.set()
            await writing
            await asyncio.to_thread(found.stop, 2)
            async with asyncio.timeout(30):
                while True:
                    with contextlib.suppress(StoreError):
                        there, _ = await store.get_children("/")
                        break
                    await asyncio.sleep(0.1)
            assert set(acknowledged) <= set(there), "and it survives the loss of one"
            assert len(acknowledged) > 50
        finally:
            stop.set()
            await writing
            await store.close()
