"""A cluster for a script instead of a plan: ordinary settings, no fault but those of the script, the usual
ending.

After the script everything is healed; every partition must take an append, all replicas must become equal,
and the checkers go over the whole history and what is on the disks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.sim.checkers.history import AppendOp, Outcome
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.cluster.ending import Ending
from tests.sim.cluster.server_role import ServerRole
from tests.sim.cluster.shape import Shape
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.cluster.world import Choice, World
from tests.sim.kernel.loop import collect_remains
from tests.sim.kernel.process import Process
from tests.sim.kernel.zookeeper import HOST as ZOOKEEPER
from tests.sim.workloads.tracked import TrackedClient, open_client
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.service.disk_pool import QueueLimits

T = TypeVar("T")
Machine = StorageRole | ServerRole
WORKLOAD = "scenario"
HEADER = 7
FIRST_SECONDS = 30.0
POLL_SECONDS = 0.05


class ScriptError(AssertionError):
    """The scene could not be set: what the script waited for did not come."""


def ordinary(shape: Shape, partitions: int, storage_nodes: int, servers: int) -> Shape:
    """The drawn shape with settings as a cluster in use has them, but small segments."""
    return replace(
        shape,
        storage_nodes=storage_nodes,
        servers=servers,
        partitions=partitions,
        placement=tuple(tuple(range(1, storage_nodes + 1)) for _ in range(partitions)),
        session_timeout_seconds=4.0,
        latency_seconds=(0.0001, 0.001),
        sync_seconds=(0.0002, 0.002),
        engine=EngineSettings(segment_threshold_bytes=2048),
        queue_limits=QueueLimits(),
        server_keys=(("storage.initialRetryInterval", 50), ("storage.maxRetryInterval", 1000)),
        store_bounds=(),
        client_keys=(),
    )


class Audience:
    """The one workload of a stage: it does nothing until everything is over."""

    name = "audience"

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """One."""

        async def main() -> None:
            await access.stopping.wait()

        return [(self.name, main)]


class Stage(World):
    """See the module. `script` gets the stage once the cluster serves."""

    def __init__(
        self,
        seed: int,
        script: Callable[[Stage], Awaitable[None]],
        *,
        partitions: int = 1,
        storage_nodes: int = 3,
        servers: int = 2,
    ) -> None:
        super().__init__(seed, Choice(faults=frozenset()), lambda *_: [Audience()])
        self.shape = ordinary(self.shape, partitions, storage_nodes, servers)
        self.rng = self.loop.rng("script")
        self._script = script

    async def _main(self) -> None:
        await self._build()
        await self.until(lambda: self.serving(0), FIRST_SECONDS, "the cluster serves")
        await self._script(self)
        await Ending(self).run()

    # -- people ----------------------------------------------------------------------------------------

    def user(self, name: str, use: Callable[[TrackedClient], Awaitable[None]], **settings: object) -> Process:
        """An application with a client, on a host of its own."""

        async def main() -> None:
            async with open_client(self.access, name, None, least_version=0, **settings) as client:
                await use(client)

        return self.loop.spawn_process(name, self.loop.host(name), main)

    async def finished(self, process: Process, seconds: float = 120.0) -> None:
        """Wait until an application has ended; ScriptError when it does not or ends with an error."""
        try:
            async with asyncio.timeout(seconds):
                await process.wait_ended()
        except TimeoutError:
            raise ScriptError(f"{process.name} has not ended after {seconds:g} s") from None
        if process.exit_error is not None:
            raise ScriptError(f"{process.name} ended with {process.exit_error!r}") from process.exit_error

    def new_append(self, name: str, partition: int = 0, size: int = 60) -> AppendOp:
        """What somebody is going to append."""
        return self.history.invoke(name, WORKLOAD, partition, {"filler": "x" * size}, header=HEADER)

    async def write(
        self, count: int, *, partition: int = 0, name: str = "writer", deadline_seconds: float = 60.0
    ) -> list[AppendOp]:
        """Some appends of an application, a few at a time; returns those that were acknowledged."""
        ops: list[AppendOp] = []

        async def use(client: TrackedClient) -> None:
            for start in range(0, count, 5):
                batch = [self.new_append(name, partition) for _ in range(min(5, count - start))]
                ops.extend(batch)
                async with asyncio.TaskGroup() as tasks:
                    for op in batch:
                        tasks.create_task(client.append(op, deadline_seconds=deadline_seconds))

        await self.finished(self.user(name, use))
        return [op for op in ops if op.outcome is Outcome.COMMITTED]

    async def read_all(
        self, partition: int = 0, *, name: str = "fresh", seconds: float = 60.0
    ) -> list[bytes]:
        """The whole partition, as a fresh client reads it."""
        found: list[bytes] = []

        async def use(client: TrackedClient) -> None:
            mark = await client.high_water_mark(partition, seconds)
            if mark is None:
                raise ScriptError("no answer to the question for the mark")
            if mark >= 0:
                async with asyncio.timeout(seconds):
                    async for got in client.client.feed(partition, until=mark):
                        found.append(got.data or b"")

        await self.finished(self.user(name, use), seconds + 30)
        return found

    # -- machines --------------------------------------------------------------------------------------

    def owner(self, partition: int = 0) -> ServerRole:
        """The server whose partition it is; ScriptError when there is none."""
        for role in self.servers.values():
            if role.alive and partition in role.served():
                return role
        raise ScriptError(f"nobody serves partition {partition}")

    def other(self, role: ServerRole) -> ServerRole:
        """The server that would take over."""
        return next(one for one in self.servers.values() if one is not role)

    def serving(self, partition: int = 0) -> bool:
        """Somebody serves the partition, with a high-water mark that is decided."""
        return any(
            role.alive and partition in role.served() and role.committed_mark(partition) is not None
            for role in self.servers.values()
        )

    async def until(
        self, condition: Callable[[], bool], seconds: float, what: str, *, poll_seconds: float = POLL_SECONDS
    ) -> float:
        """Wait for something; how long it took. ScriptError when it does not come."""
        start = self.loop.time()
        while not condition():
            if self.loop.time() - start > seconds:
                raise ScriptError(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(poll_seconds)
        return self.loop.time() - start

    async def takeover(self, new_owner: ServerRole, when: str) -> None:
        """Wait until another server has the partition: when it serves it (`after`), or at some moment
        between its taking the session id and that (`during`)."""
        if when == "after":
            await self.until(lambda: 0 in new_owner.served(), 30.0, "the other server takes over")
            return
        for node in self.storage:  # a slow recovery has more moments
            for link in (
                self.loop.network.link(new_owner.name, node),
                self.loop.network.link(node, new_owner.name),
            ):
                link.latency_seconds = (0.02, 0.08)
        before = self.session_id()
        await self.until(
            lambda: self.session_id() != before, 30.0, "the other server takes a session", poll_seconds=0.005
        )
        await asyncio.sleep(0.8 * self.rng.random())

    def session_id(self, partition: int = 0) -> int:
        """The newest store session that ZooKeeper knows."""
        metadata = self.state.metadata(partition)
        return -1 if metadata is None else metadata.session_id

    async def whole(self, seconds: float = 60.0) -> None:
        """Wait until every replica has everything."""
        await self.until(self.state.settled, seconds, f"all replicas are equal: {self.state.unsettled()}")

    def block(self, source: str, target: str) -> None:
        """One direction between two hosts."""
        self.loop.network.block(source, target)

    def cut_off(self, host: str, others: Sequence[str]) -> None:
        """Both directions between a host and others."""
        for other in others:
            self.block(host, other)
            self.block(other, host)

    def isolate(self, host: str) -> None:
        """A host hears nobody and is heard by nobody."""
        self.cut_off(host, [name for name in (*self.roles(), ZOOKEEPER) if name != host])

    def heal_network(self) -> None:
        """All links are open."""
        self.loop.network.heal_all()

    def dark(self, roles: Sequence[Machine]) -> None:
        """Power fails for all of them in one moment; they stay down until `light`."""
        for role in roles:
            role.hold()
            role.power_off()

    def light(self, roles: Sequence[Machine]) -> None:
        """Power comes back."""
        for role in roles:
            role.release()


def seeds(usual: int) -> range:
    """The seeds of a scenario; more of them with `SCENARIO_SEEDS=...` in the environment."""
    return range(int(os.environ.get("SCENARIO_SEEDS", usual)))


def play(
    seed: int,
    script: Callable[[Stage], Awaitable[None]],
    *,
    partitions: int = 1,
    storage_nodes: int = 3,
    servers: int = 2,
    by_zookeeper: bool = False,
) -> Stage:
    """Run a script to the usual ending; AssertionError with the first violations. `by_zookeeper`: no client
    asks servers for the way."""
    stage = Stage(seed, script, partitions=partitions, storage_nodes=storage_nodes, servers=servers)
    if by_zookeeper:
        stage.shape = replace(stage.shape, directory_clients=0.0)
    result = stage.run()
    collect_remains()
    found = [str(violation) for violation in result.violations[:5]]
    assert not found, f"seed {seed}: {found}"
    return stage
