"""The machines of some namespaces: their storage nodes and servers, by the machinery of the operator's tests.

    python -m bench.operator_machines DIRECTORY NAMES URL CA_FILE NAMESPACE…

A process of its own for some clusters, because one process may not open the files and connections of all.
The token of the API server is in the environment. It answers each line of its standard input with `done` when
that is carried out: `attend NAMESPACE…` and `leave NAMESPACE…`, whether their pods are started and stopped as
they should be from now on, and `crash NAMESPACE`, the end of its servers. It ends with its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.operator_names import publish
from bench.processes import ROOT

sys.path.insert(0, str(ROOT / "operator" / "tests"))

from operator_tests.apiserver.control_plane import ControlPlane
from operator_tests.apiserver.installed import Administrator
from operator_tests.apiserver.loop import ClusterLoop, cluster_loop
from operator_tests.apiserver.machinery import Machinery
from operator_tests.apiserver.processes import ServerPod

from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.store import ZooKeeperStore
from waltz_cluster.zk_client import connect
from waltz_operator.kube.errors import KubeError
from waltz_runtime.logs import configure_logging

TOKEN = "WALTZ_BENCH_TOKEN"
_TURN_SECONDS = 0.2
_TOGETHER = 6
"""Namespaces whose pods are looked after at the same time."""


class _RealZooKeeper:
    """Sessions with the real server."""

    async def login(self, settings: ZooKeeperSettings, timeout_seconds: float, who: str) -> ZooKeeperStore:
        return await connect(settings)


class Machines:
    """Owner of the pods. One writer: the loop."""

    def __init__(self, admin: Administrator, directory: Path, names: Path, namespaces: Sequence[str]) -> None:
        self._names = names
        self._attended: set[str] = set()
        self._machineries = {
            namespace: Machinery(admin, namespace, directory / namespace, _RealZooKeeper())
            for namespace in namespaces
        }

    async def run(self) -> None:
        """Until the standard input ends."""
        async with asyncio.TaskGroup() as group:
            living = (group.create_task(self._publish_names()), group.create_task(self._kubelets()))
            while line := await asyncio.to_thread(sys.stdin.readline):
                what, *namespaces = line.split()
                if what == "attend":
                    self._attended |= set(namespaces)
                elif what == "leave":
                    self._attended -= set(namespaces)
                else:
                    await self._crash(*namespaces)
                print("done", flush=True)
            for task in living:
                task.cancel()
        await asyncio.gather(*(machinery.close() for machinery in self._machineries.values()))

    async def _crash(self, namespace: str) -> None:
        machinery = self._machineries[namespace]
        for name in [name for name, pod in machinery.pods.items() if isinstance(pod, ServerPod)]:
            await machinery.crash(name)

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
        before: dict[tuple[str, int], int] = {}
        while True:
            names = dict(cluster_loop().names)
            if names != before:
                publish(names, self._names)
                before = names
            await asyncio.sleep(0.05)


async def _main(directory: str, names: str, url: str, ca_file: str, *namespaces: str) -> None:
    admin = Administrator(ControlPlane(url, os.environ[TOKEN], ca_file).configuration())
    try:
        await Machines(admin, Path(directory), Path(names), namespaces).run()
    finally:
        await admin.close()


if __name__ == "__main__":
    configure_logging("ERROR", False)  # on standard error
    with asyncio.Runner(loop_factory=ClusterLoop) as runner:
        runner.run(_main(*sys.argv[1:]))
