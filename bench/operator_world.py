"""What one operator process looks after in its benchmark: a real API server with etcd, a real ZooKeeper, and
for every WaltzCluster the shipped storage nodes and servers, by the machinery of the operator's tests.

The storage nodes and servers run in processes of their own, some clusters each (`operator_machines`), the
operator in another (`operator_process`). Every cluster has a namespace of its own, and a session of the
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

from bench.operator_machines import TOKEN
from bench.processes import ROOT, BenchError, Child, start_role

sys.path.insert(0, str(ROOT / "operator" / "tests"))

from operator_tests.apiserver.control_plane import ControlPlane, control_plane
from operator_tests.apiserver.installed import Administrator, install, make_namespace, operator_token
from operator_tests.apiserver.processes import mount

from waltz_client.client import WaltzClient
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeUnavailableError
from waltz_testkit.zookeeper import EmbeddedZooKeeper

NAME = "ledger"
NODES, SERVERS = 3, 2
OPERATOR_USER = "system:serviceaccount:waltz-system:waltz-operator"
READY_SECONDS = 1800.0
"""A whole world may take so long until every cluster is at rest; machines differ."""
_SESSION_SECONDS = 60
_WAVE = 5
"""Clusters that are installed at the same time."""
_PER_PROCESS = 10
"""Clusters of one process: 64 partitions on three nodes have some 700 files and connections open."""
_ANSWER_SECONDS = 120.0
_WANTED = {"Available": "True", "Progressing": "False", "Degraded": "False", "ReplicasCaughtUp": "True"}
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [OPERATOR_USER]}, {"level": "None"}],
}


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
        self.names = directory / "names"
        self._zookeeper = zookeeper
        self._machines: dict[str, Child] = {}
        """Of each namespace the process that runs its pods."""

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
        """Definitions, namespaces and processes; the path of the operator's kubeconfig."""
        await install(self.admin)
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(self.control.kubeconfig(await operator_token(self.admin))))
        for namespace in self.namespaces:
            await make_namespace(self.admin, namespace)
        self.names.mkdir()
        control = self.control
        for first in range(0, len(self.namespaces), _PER_PROCESS):
            namespaces = self.namespaces[first : first + _PER_PROCESS]
            names = self.names / f"{namespaces[0]}.json"
            arguments = [str(self.directory), str(names), control.url, control.ca_file, *namespaces]
            machines = start_role("bench.operator_machines", arguments, {TOKEN: control.admin_token})
            self._machines |= dict.fromkeys(namespaces, machines)
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

    def _connect_string(self, namespace: str) -> str:
        """One server for all; an address of its own, and so a session of its own, for each."""
        number = self.namespaces.index(namespace) + 1
        return f"127.0.1.{number}:{self._zookeeper.port}"

    async def close(self) -> None:
        for machines in set(self._machines.values()):
            await asyncio.to_thread(machines.stop)
        await self.admin.close()

    # ---- what the machines do

    async def _order(self, what: str, namespaces: Collection[str]) -> None:
        """Each process what is for it; returns when they have done it."""

        def order(machines: Child, of: list[str]) -> None:
            machines.send_line(" ".join([what, *of]))
            machines.wait_line("done", _ANSWER_SECONDS)

        for machines in set(self._machines.values()):
            of = [namespace for namespace in namespaces if self._machines[namespace] is machines]
            if of:
                await asyncio.to_thread(order, machines, of)

    @contextlib.asynccontextmanager
    async def attended(self, namespaces: Collection[str]) -> AsyncIterator[None]:
        """Their pods are started and stopped as they should be meanwhile."""
        await self._order("attend", namespaces)
        try:
            yield
        finally:
            await self._order("leave", namespaces)

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
        await self._order("crash", [namespace])

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
        yield world, await world.open()
    finally:
        await world.close()


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """In memory where there is such a place: a thousand small files are synced at the install, which is not
    what is measured."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="waltz-bench-", dir=memory if memory.is_dir() else None)
