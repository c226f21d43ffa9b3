"""One operator process with fifty clusters of 64 partitions: what it costs at rest, and whether those at rest
are looked after while ten others roll.

API server, ZooKeeper, storage nodes and servers are real (`operator_world`); what is left out is the kubelet
and the controllers of Kubernetes, which the machinery of the operator's tests plays. Requests are counted by
the API server (its audit log), processor and memory by the kernel, passes by the operator's own metrics.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil

from bench.figures import Figure
from bench.operator_names import NamedLoop
from bench.operator_world import NODES, SERVERS, OperatorWorld, machines, operator_world, scratch_directory
from bench.plan import (
    OPERATOR_CPU_TARGET,
    OPERATOR_MEMORY_TARGET,
    OPERATOR_NOTICE_TARGET,
    OPERATOR_PASS_TARGET,
    OPERATOR_READS_TARGET,
    OPERATOR_WRITES_TARGET,
    Plan,
)
from bench.processes import ROOT, BenchError, cpu_seconds, resident_mib
from waltz_testkit.ports import free_port

GROUP = "operator"
CALM_SECONDS = 45.0
"""After the last change, before the rest is measured: what is looked at again soon has been by then."""
SAMPLE_SECONDS = 5.0
"""A page costs the operator milliseconds, which count."""
READS, WATCHES = frozenset({"get", "list"}), frozenset({"watch"})
_AGE = re.compile(rb'^waltz_operator_reconcile_age_seconds\{name="[^"]*",namespace="([^"]*)"\} (\S+)', re.M)


@dataclass
class Passes:
    """The largest time since the last pass of each cluster, sampled; seconds."""

    oldest: dict[str, float] = field(default_factory=dict)

    def take(self, page: bytes) -> None:
        for namespace, age in _AGE.findall(page):
            name = namespace.decode()
            self.oldest[name] = max(self.oldest.get(name, 0.0), float(age))

    def longest(self, of: Sequence[str]) -> float:
        return max(self.oldest[name] for name in of)


class Operator:
    """The process, and what it says about itself."""

    def __init__(self, names: Path, kubeconfig: str, log: Path) -> None:
        self._port = free_port()
        arguments = [
            "run", "--kubeconfig", kubeconfig, "--lease-namespace", "waltz-system", "--http-host", "127.0.0.1",
            "--http-port", str(self._port),
        ]  # fmt: skip
        command = [sys.executable, "-m", "bench.operator_process", str(names), *arguments]
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT)
        self.process = psutil.Process(self._process.pid)

    def page(self) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
            return bytes(answer.read())

    def memory_mib(self) -> float:
        return resident_mib(self._process.pid)

    def peak_mib(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024

    def stop(self) -> None:
        """SIGTERM, then the hard way. BenchError when it had ended before."""
        ended = self._process.poll()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if ended is not None:
            raise BenchError(f"the operator ended early with code {ended}")


async def measure_operator(plan: Plan) -> list[Figure]:
    """All figures, from one world, made in memory where that is possible."""

    def there() -> list[Figure]:
        with scratch_directory() as name:
            directory = Path(name)
            with (
                machines(directory) as (control, zookeeper),
                asyncio.Runner(loop_factory=lambda: NamedLoop(directory / "names")) as runner,
            ):

                async def all_of_it() -> list[Figure]:
                    clusters, partitions = plan.operator_clusters, plan.operator_partitions
                    async with operator_world(control, zookeeper, directory, clusters, partitions) as (
                        world,
                        kubeconfig,
                    ):
                        operator = Operator(world.names, kubeconfig, directory / "operator.log")
                        try:
                            return await _Measure(world, operator, plan).run()
                        finally:
                            operator.stop()

                return runner.run(all_of_it())

    return await asyncio.to_thread(there)


class _Measure:
    def __init__(self, world: OperatorWorld, operator: Operator, plan: Plan) -> None:
        self._world = world
        self._operator = operator
        self._plan = plan
        self._load = (
            f"{plan.operator_clusters} clusters of {plan.operator_partitions} partitions, {NODES} storage nodes "
            f"and {SERVERS} servers each"
        )

    async def run(self) -> list[Figure]:
        everywhere = self._world.namespaces
        await self._world.install()
        await asyncio.sleep(CALM_SECONDS)
        await self._world.calm(everywhere)
        return [*await self._at_rest(), *await self._rolling()]

    async def _at_rest(self) -> list[Figure]:
        world, seconds = self._world, self._plan.operator_seconds
        world.requests.since_last()
        before, passes = cpu_seconds(self._operator.process), Passes()
        async with self._sampled(passes):
            await asyncio.sleep(seconds)
        share = (cpu_seconds(self._operator.process) - before) / seconds * 100
        asked = Counter(_kind_of(one) for one in world.requests.since_last() if _of_a_cluster(one))
        per_minute = {kind: count / len(world.namespaces) / (seconds / 60) for kind, count in asked.items()}
        load = f"at rest: {self._load}"
        counted = ", ".join(f"{count} {kind}" for kind, count in sorted(asked.items())) or "nothing"
        note = f"{counted} in {seconds:g} s"
        return [
            Figure(GROUP, "resident memory", self._operator.memory_mib(), "MiB", OPERATOR_MEMORY_TARGET, load),
            Figure(GROUP, "CPU", share, "% of a core", OPERATOR_CPU_TARGET, load),
            Figure(
                GROUP, "reads per cluster and minute", per_minute.get("read", 0.0), "", OPERATOR_READS_TARGET, load, note
            ),
            Figure(
                GROUP, "writes per cluster and minute", per_minute.get("write", 0.0), "", OPERATOR_WRITES_TARGET, load, note
            ),
            Figure(
                GROUP, "longest time between two passes", passes.longest(world.namespaces), "s", OPERATOR_PASS_TARGET, load
            ),
        ]  # fmt: skip

    async def _rolling(self) -> list[Figure]:
        """A fifth of them roll; those at rest are changed one after the other meanwhile."""
        world, loop = self._world, asyncio.get_running_loop()
        rolling = world.namespaces[: max(1, len(world.namespaces) // 5)]
        resting = [one for one in world.namespaces if one not in rolling]
        before, began, passes = cpu_seconds(self._operator.process), loop.time(), Passes()
        noticed: list[float] = []
        async with world.attended(rolling), self._sampled(passes), asyncio.TaskGroup() as group:
            for namespace in rolling:
                await world.roll(namespace)
            done = group.create_task(world.calm(rolling))
            while not done.done():
                noticed.append(await world.delete_service(resting[len(noticed) % len(resting)]))
                await asyncio.wait({done}, timeout=2.0)
        taken = loop.time() - began
        share = (cpu_seconds(self._operator.process) - before) / taken * 100
        load = f"{len(rolling)} of them roll: {self._load}"
        rolled = f"all {len(rolling)} are rolled after {taken:.0f} s"
        changes = f"median {median(noticed):.2f} s of {len(noticed)}"
        return [
            Figure(
                GROUP, "longest time between two passes", passes.longest(resting), "s", OPERATOR_PASS_TARGET, load,
                "of those at rest",
            ),
            Figure(
                GROUP, "until a change of one at rest is acted upon", max(noticed), "s", OPERATOR_NOTICE_TARGET, load,
                changes,
            ),
            Figure(GROUP, "CPU", share, "% of a core", None, load, rolled),
            Figure(GROUP, "most resident memory", self._operator.peak_mib(), "MiB", OPERATOR_MEMORY_TARGET, load),
        ]  # fmt: skip

    @asynccontextmanager
    async def _sampled(self, passes: Passes) -> AsyncIterator[None]:
        """The operator's page, over and over."""

        async def sample() -> None:
            while True:
                passes.take(await asyncio.to_thread(self._operator.page))
                await asyncio.sleep(SAMPLE_SECONDS)

        async with asyncio.TaskGroup() as group:
            sampling = group.create_task(sample())
            yield
            sampling.cancel()


def _of_a_cluster(request: dict[str, object]) -> bool:
    """Whether it is about a cluster: the Lease is the operator's own."""
    about = request.get("objectRef")
    return isinstance(about, dict) and about.get("resource") not in ("leases", "selfsubjectrulesreviews")


def _kind_of(request: dict[str, object]) -> str:
    verb = str(request.get("verb"))
    return "watch" if verb in WATCHES else "read" if verb in READS else "write"
