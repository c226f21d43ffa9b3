"""What one operator process looks after in its benchmark: a real API server with etcd, a real ZooKeeper, and
for every WaltzCluster the shipped storage nodes and servers, by the machinery of the operator's tests.

All storage nodes and servers run in this process, the operator in one of its own (`operator_process`), which
finds the names of their pods in a file. Every cluster has a namespace of its own, and a session of the
operator with ZooKeeper of its own, as clusters with managed ZooKeepers have.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.processes import ROOT, BenchError

sys.path.insert(0, str(ROOT / "operator" / "tests"))

from operator_tests.apiserver.control_plane import ControlPlane, control_plane
from operator_tests.apiserver.installed import Administrator, install, make_namespace, operator_token
from operator_tests.apiserver.loop import cluster_loop
from operator_tests.apiserver.machinery import Machinery
from operator_tests.apiserver.processes import ServerPod, mount

from waltz_client.client import WaltzClient
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeError, KubeUnavailableError
from waltz_testkit.zookeeper import EmbeddedZooKeeper

NAME = "ledger"
NODES, SERVERS = 3, 2
OPERATOR_USER = "system:serviceaccount:waltz-system:waltz-operator"
READY_SECONDS = 1800.0
"""A whole world may take so long until every cluster is at rest; machines differ."""
_SESSION_SECONDS = 60
_TURN_SECONDS = 0.2
_WAVE = 5
"""Clusters that are installed at the same time."""
_TOGETHER = 6
"""Namespaces whose pods are looked after at the same time."""
_WANTED = {"Available": "True", "Progressing": "False", "Degraded": "False", "ReplicasCaughtUp": "True"}
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [OPERATOR_USER]}, {"level": "None"}],
}


class _RealZooKeeper:
    """Sessions with the real server."""

    async def login(self, settings: ZooKeeperSettings, timeout_seconds: float, who: str) -> ZooKeeperStore:
        return await connect(settings)


class Requests:
    """What the operator asked the API server, from the server's own audit log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def since_last(self) -> list[dict[str, Any]]:
        """Requests that have ended since the last call; watches are not among them while they are open."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            read = file.read()
        whole = read[: read.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class OperatorWorld:
    """Owner of everything but the operator. One writer: the loop."""

    def __init__(
        self,
        control: ControlPlane,
        zookeeper: EmbeddedZooKeeper,
        directory: Path,
        clusters: int,
        partitions: int,
    ) -> None:
        self.control = control
        self.admin = Administrator(control.configuration())
        self.directory = directory
        self.partitions = partitions
        self.namespaces = [f"tenant-{number}" for number in range(clusters)]
        self.requests = Requests(directory / "audit.log")
        self.names_file = directory / "names.json"
        self._zookeeper = zookeeper
        self._attended: set[str] = set()
        self._machineries = {
            namespace: Machinery(self.admin, namespace, directory / namespace, _RealZooKeeper())
            for namespace in self.namespaces
        }

    def spec(self, **more: Any) -> dict[str, Any]:
        """Three nodes, two servers, everything else as by default."""
        return {
            "images": {"server": "waltz-server:1", "storage": "waltz-storage:1"},
            "partitions": self.partitions,
            "replicas": NODES,
            "servers": {"replicas": SERVERS, "config": {"storage.maxRetryInterval": 400}},
            **more,
        }

    async def open(self) -> str:
        """Definitions and namespaces; the path of the operator's kubeconfig."""
        await install(self.admin)
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(self.control.kubeconfig(await operator_token(self.admin))))
        for namespace in self.namespaces:
            await make_namespace(self.admin, namespace)
        return str(kubeconfig)

    async def install(self) -> None:
        """The WaltzClusters, some at a time, each with a transaction in every partition. Returns when all are
        at rest."""
        for first in range(0, len(self.namespaces), _WAVE):
            wave = self.namespaces[first : first + _WAVE]
            for namespace in wave:
                zookeeper = {
                    "connectString": self._connect_string(namespace),
                    "sessionTimeoutSeconds": _SESSION_SECONDS,
                }
                await self.admin.create(_body(namespace, self.spec(zookeeper=zookeeper)))
            async with self.attended(wave):
                await self.calm(wave)
                for namespace in wave:
                    await self.fill(namespace)
                await self.calm(wave)

    async def live(self) -> None:
        """Names are published and pods are looked after, until this is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish_names(), name="names")
            group.create_task(self._kubelets(), name="kubelets")

    def _connect_string(self, namespace: str) -> str:
        """One server for all; an address of its own, and so a session of its own, for each."""
        number = self.namespaces.index(namespace) + 1
        return f"127.0.1.{number}:{self._zookeeper.port}"

    async def close(self) -> None:
        await asyncio.gather(*(machinery.close() for machinery in self._machineries.values()))
        await self.admin.close()

    # ---- what a kubelet does

    async def _kubelets(self) -> None:
        """The pods of attended namespaces, over and over."""
        gate = asyncio.Semaphore(_TOGETHER)

        async def one(namespace: str) -> None:
            async with gate:
                # the operator writes at the same time: what has changed meanwhile is looked at again
                with contextlib.suppress(TimeoutError, KubeError):
                    await self._machineries[namespace].settle()

        while True:
            await asyncio.gather(*(one(namespace) for namespace in sorted(self._attended)))
            await asyncio.sleep(_TURN_SECONDS)  # others move on meanwhile

    async def _publish_names(self) -> None:
        """The names of pods for the operator's process, whenever they have changed."""
        before = ""
        while True:
            names = cluster_loop().names
            text = json.dumps([[host, port, real] for (host, port), real in sorted(names.items())])
            if text != before:
                new = self.names_file.with_suffix(".new")
                new.write_text(text)
                new.replace(self.names_file)
                before = text
            await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def attended(self, namespaces: Collection[str]) -> AsyncIterator[None]:
        """Their pods are started and stopped as they should be meanwhile."""
        self._attended |= set(namespaces)
        try:
            yield
        finally:
            self._attended -= set(namespaces)

    # ---- the clusters

    async def cluster(self, namespace: str) -> Object:
        return await self.admin.get(kinds.WALTZ_CLUSTER, namespace, NAME)

    async def calm(self, namespaces: Collection[str]) -> None:
        """Until the status of each says that nothing is under way. BenchError after `READY_SECONDS`."""
        left = set(namespaces)
        try:
            async with asyncio.timeout(READY_SECONDS):
                while left:
                    await asyncio.sleep(0.5)
                    with contextlib.suppress(KubeUnavailableError):  # this process has a lot to do
                        bodies = await self.admin.list(kinds.WALTZ_CLUSTER, None)
                        left -= {body["metadata"]["namespace"] for body in bodies if _is_calm(body)}
        except TimeoutError:
            raise BenchError(
                f"clusters in {sorted(left)[:5]} are not at rest after {READY_SECONDS:g} s"
            ) from None

    async def fill(self, namespace: str) -> None:
        """A transaction in every partition, then other sessions: only now every copy has a low-water mark
        whose record the operator asks for."""
        files = self.directory / namespace / "client"
        mount(files, await self.admin.get(kinds.SECRET, namespace, f"{NAME}-tls-client"))
        keys: dict[str, object] = {
            "zookeeper.connectString": self._connect_string(namespace),
            "zookeeper.sessionTimeout": _SESSION_SECONDS * 1000,
            "cluster.root": f"/waltz/{namespace}/{NAME}",
            "client.ssl.keyStore.location": str(files),
            "client.ssl.trustStore.location": str(files),
        }
        async with WaltzClient.connect(keys) as client:
            appends = (
                client.append(partition=p, data=b"1", deadline_seconds=120) for p in range(self.partitions)
            )
            await asyncio.gather(*appends)
        machinery = self._machineries[namespace]
        for name in [name for name, pod in machinery.pods.items() if isinstance(pod, ServerPod)]:
            await machinery.crash(name)

    async def roll(self, namespace: str) -> None:
        """Ask for other images of everything."""
        images = {"server": "waltz-server:2", "storage": "waltz-storage:2"}
        patch = {"spec": {"images": images}}
        await self.admin.merge_patch(kinds.WALTZ_CLUSTER, namespace, NAME, patch)

    async def delete_service(self, namespace: str) -> float:
        """Delete an object that is the operator's; the seconds until there is another one."""
        loop = asyncio.get_running_loop()
        before = await self.admin.get(kinds.SERVICE, namespace, NAME)
        uid, began = before["metadata"]["uid"], loop.time()
        await self.admin.delete(kinds.SERVICE, namespace, NAME, uid=uid)
        async with asyncio.timeout(READY_SECONDS):
            while not any(
                one["metadata"]["name"] == NAME for one in await self.admin.list(kinds.SERVICE, namespace)
            ):
                await asyncio.sleep(0.02)  # the object is what is waited for
        return loop.time() - began


def _body(namespace: str, spec: dict[str, Any]) -> Object:
    return {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": spec,
    }


def _is_calm(body: Object) -> bool:
    status = body.get("status", {})
    if status.get("observedGeneration") != body["metadata"]["generation"]:
        return False
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    return all(conditions.get(name) == value for name, value in _WANTED.items())


@contextlib.contextmanager
def machines(directory: Path) -> Iterator[tuple[ControlPlane, EmbeddedZooKeeper]]:
    """API server and ZooKeeper."""
    policy = directory / "audit.yaml"
    policy.write_text(yaml.safe_dump(_AUDIT))
    options = (
        f"--audit-policy-file={policy}", f"--audit-log-path={directory / 'audit.log'}", "--audit-log-mode=blocking",
    )  # fmt: skip
    with (
        control_plane(directory, *options) as control,
        EmbeddedZooKeeper(directory / "zookeeper", tick_time_ms=2000, address="0.0.0.0") as zookeeper,
    ):
        yield control, zookeeper


@contextlib.asynccontextmanager
async def operator_world(
    control: ControlPlane, zookeeper: EmbeddedZooKeeper, directory: Path, clusters: int, partitions: int
) -> AsyncIterator[tuple[OperatorWorld, str]]:
    """All of it with its WaltzClusters made, and the operator's kubeconfig."""
    world = OperatorWorld(control, zookeeper, directory, clusters, partitions)
    try:
        kubeconfig = await world.open()
        async with asyncio.TaskGroup() as group:
            living = group.create_task(world.live())
            yield world, kubeconfig
            living.cancel()
    finally:
        await world.close()


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """In memory where there is such a place: a thousand small files are synced at the install, which is not
    what is measured."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="waltz-bench-", dir=memory if memory.is_dir() else None)
