"""What the operator sees and makes of a real ZooKeeper: whether it serves, that its data were lost, and an
ensemble that grows member by member while it is written to."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cryptography import x509

from operator_tests.resources.clusters import cluster
from waltz_admin.found_tree import NoTree
from waltz_admin.seeding import create
from waltz_admin.view import ClusterView, probe
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ClusterError, ConnectError, NodeExistsError, StoreError
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_operator.api.topology import ZOOKEEPER_PORT, authority_secret, tls_roles
from waltz_operator.model.actions import ApplyObject
from waltz_operator.plan.certificates import certificate_steps
from waltz_operator.resources.zookeeper import SERVES, render_config
from waltz_operator.run import zookeeper_sessions
from waltz_operator.run.zookeeper_sessions import Ensemble, Ensembles
from waltz_operator.tls.rotation import DAY_SECONDS
from waltz_operator.tls.secrets import TlsSecrets, secret_data
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
        async with asyncio.timeout(60.0):
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


TLS = {"zookeeper": {"managed": {"replicas": 3, "tls": "Enabled"}}}
PLAIN = {"zookeeper": {"managed": {"replicas": 3}}}


class Certificates:
    """What the operator writes into the Secrets of a cluster, as directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cluster = cluster(TLS)
        self._present = TlsSecrets()
        self._times = 0
        self.now = time.time() - 61 * DAY_SECONDS  # due for renewal today, and still valid
        self.write()
        self.now = time.time()

    def write(self, *, settled: bool = False) -> list[str]:
        """All that is due; what that was."""
        reasons = []
        roles = {one.secret: one.role for one in tls_roles(self._cluster)}
        while steps := certificate_steps(self._cluster, self._present, self.now, settled=settled):
            contents = dict(self._present.contents)
            for step in steps:
                if isinstance(step, ApplyObject):
                    contents[roles.get(step.key.name, step.key.name)] = secret_data(step.body)
                    reasons.append(step.reason)
            self._present = TlsSecrets(contents, dict.fromkeys(contents, "1"))
            settled = False
        for role, data in self._present.contents.items():
            self._mount(self._directory / role, data)
        return reasons

    def lose_authority(self) -> None:
        """Its Secret is deleted: another one has to come, in steps."""
        contents = {**self._present.contents, authority_secret(self._cluster): {}}
        self._present = TlsSecrets(contents, dict.fromkeys(contents, "1"))

    def _mount(self, place: Path, data: Mapping[str, bytes]) -> None:
        """As the kubelet does: one link is changed, and all files with it."""
        self._times += 1
        fresh = place / f"..{self._times}"
        fresh.mkdir(parents=True)
        for name, content in data.items():
            (fresh / name).write_bytes(content)
            if not (place / name).is_symlink():
                (place / name).symlink_to(f"..data/{name}")
        (place / "..new").symlink_to(fresh.name)
        (place / "..new").rename(place / "..data")

    def of(self, role: str) -> Path:
        return self._directory / role


class Members:
    """Servers of an ensemble on the loopback address, with the configuration that the operator renders."""

    def __init__(self, directory: Path, certificates: Certificates | None = None) -> None:
        self._directory = directory
        self._certificates = certificates
        ports = free_ports(12)
        self.ports = [ports[4 * n : 4 * n + 4] for n in range(3)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def settings(self, role: str = "operator") -> ZooKeeperSettings:
        """Of a process that has this role's certificate; the names in the servers' are those of pods."""
        place = 3 if self._certificates is not None else 0
        keys: dict[str, object] = {
            "zookeeper.connectString": ",".join(f"127.0.0.1:{ports[place]}" for ports in self.ports),
            "zookeeper.sessionTimeout": 15_000,
            "zookeeper.connectTimeout": 5_000,
            "cluster.root": "/c",
        }
        if self._certificates is not None:
            own = str(self._certificates.of(role))
            keys |= {"zookeeper.ssl.keyStore.location": own, "zookeeper.ssl.trustStore.location": own}
            keys["zookeeper.ssl.verifyHostName"] = False
        return ZooKeeperSettings.from_mapping(keys)

    def start(self, number: int, members: int) -> None:
        """As its pod does when its template has that number of members."""
        data = self._directory / str(number)
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{number + 1}\n")
        text = render_config(cluster(PLAIN if self._certificates is None else TLS), members)
        client, _, _, secure = self.ports[number]
        text = text.replace("/var/lib/zookeeper", str(data))
        text = text.replace("=2181", f"={client}").replace("=2281", f"={secure}")
        if self._certificates is not None:
            text = text.replace("/etc/waltz/tls", str(self._certificates.of("zookeeper")))
        for one, (_, peer, election, _) in enumerate(self.ports, start=1):
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
def members(directory: Path, certificates: Certificates | None = None) -> Iterator[Members]:
    found = Members(directory, certificates)
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
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_an_ensemble_grows_member_by_member_and_loses_nothing(tmp_path: Path, tls: bool) -> None:
    """In the order of `plan.zookeeper_restarts`: the new one, then the others from the highest number."""
    with members(tmp_path, Certificates(tmp_path / "tls") if tls else None) as found:
        found.start(0, 1)
        await asyncio.to_thread(found.wait, 0)
        store = await connect(found.settings())
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


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_certificates_and_authority_of_an_ensemble_are_replaced_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    """Certificates of the same authority without a restart; another authority member by member in each of its
    steps. In between nobody without a certificate of the authority gets in."""
    certificates = Certificates(tmp_path / "tls")
    with members(tmp_path, certificates) as found:
        for number in range(3):
            found.start(number, 3)
        for number in range(3):
            await asyncio.to_thread(found.wait, number)
        store = await connect(found.settings())
        acknowledged: list[str] = []
        stop = asyncio.Event()
        writing = spawn(write(store, acknowledged, stop), "writing")
        try:
            await _refuses_strangers(found, tmp_path)
            assert certificates.write() != []
            async with asyncio.timeout(60):
                while not all(_serial(found.ports[n][3]) == _own(certificates) for n in range(3)):
                    await asyncio.sleep(0.5)
            steps = 0
            certificates.lose_authority()
            while certificates.write(settled=True):
                steps += 1
                for number in reversed(range(3)):
                    await asyncio.to_thread(found.restart, number, 3)
                assert steps < 10
            assert steps == 3, "the next one is trusted, it signs, the one before is forgotten"
            before = len(acknowledged)
            async with asyncio.timeout(30):
                while len(acknowledged) <= before:
                    await asyncio.sleep(0.05)
            stop.set()
            await writing
            async with asyncio.timeout(30):
                while True:
                    with contextlib.suppress(StoreError):
                        there, _ = await store.get_children("/")
                        break
                    await asyncio.sleep(0.1)
            assert set(acknowledged) <= set(there)
        finally:
            stop.set()
            await writing
            await store.close()


async def _refuses_strangers(found: Members, path: Path) -> None:
    """Neither the right authority with a certificate of another one, nor no certificate."""
    stranger = Certificates(path / "stranger")
    shutil.copy(path / "tls" / "operator" / "ca.crt", stranger.of("operator") / "ca.crt")
    tls = {
        f"zookeeper.ssl.{key}.location": str(stranger.of("operator")) for key in ("keyStore", "trustStore")
    }
    for shown in (tls, {**tls, "zookeeper.ssl.keyStore.location": None}):
        keys = {
            "zookeeper.connectString": f"127.0.0.1:{found.ports[0][3]}",
            "zookeeper.sessionTimeout": 4000,
            "zookeeper.connectTimeout": 2000,
            "zookeeper.ssl.verifyHostName": False,
            "cluster.root": "/c",
        }
        with pytest.raises(ConnectError, match="did not answer"):
            await connect(ZooKeeperSettings.from_mapping(keys | shown))


def _serial(port: int) -> int:
    return x509.load_pem_x509_certificate(
        ssl.get_server_certificate(("127.0.0.1", port)).encode()
    ).serial_number


def _own(certificates: Certificates) -> int:
    return x509.load_pem_x509_certificate(
        (certificates.of("zookeeper") / "tls.crt").read_bytes()
    ).serial_number
