"""Does what the plan says: begins each fault at its time, ends it at its time, and heals everything at the
end of a round."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

from tests.integration.nemesis.devices import FailingSyncs, SmallDisk
from tests.integration.nemesis.plan import ZOOKEEPER, Fault, Kind
from tests.integration.nemesis.proxy import BOTH, Direction, FaultProxy, Rule
from tests.integration.nemesis.roles import Roles


class Faults:
    """`counts` has how often each kind began; a kind that could not be done is not counted."""

    def __init__(
        self, roles: Roles, proxy: FaultProxy, disk: SmallDisk | None, syncs: FailingSyncs | None
    ) -> None:
        self._roles = roles
        self._proxy = proxy
        self._disk = disk
        self._syncs = syncs
        self._full = 0
        self.counts: Counter[Kind] = Counter()

    async def run(self, faults: list[Fault]) -> None:
        """All faults of a round, each in its own time; then everything is healed and every process
        started."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._one(fault))
        self._proxy.heal()

    async def _one(self, fault: Fault) -> None:
        await asyncio.sleep(fault.at)
        match fault.kind:
            case Kind.KILL | Kind.PAUSE | Kind.TERMINATE:
                await self._process(fault)
            case Kind.ROLLING:
                await self._rolling(fault)
            case Kind.KILL_ALL:
                await self._kill_all(fault)
            case Kind.RESET:
                self._count(fault.kind, self._proxy.reset(fault.source, fault.target))
            case Kind.CUT:
                self._count(fault.kind, self._proxy.cut(fault.source, fault.target))
            case Kind.DISK_FULL:
                await self._fill_disk(fault)
            case Kind.SYNC_FAILS:
                await self._fail_syncs(fault)
            case _:
                await self._link(fault)

    def _count(self, kind: Kind, times: int = 1) -> None:
        self.counts[kind] += min(times, 1)

    async def _process(self, fault: Fault) -> None:
        async with self._roles.held(fault.target):
            self._count(fault.kind)
            if fault.kind is Kind.KILL:
                await self._roles.kill(fault.target)
            elif fault.kind is Kind.TERMINATE:
                await self._roles.terminate(fault.target)
            else:
                self._roles.pause(fault.target)
            await asyncio.sleep(fault.seconds)

    def _tier(self, fault: Fault) -> list[str]:
        cluster = self._roles.cluster
        return cluster.storage_roles if fault.target == "storage-*" else cluster.server_roles

    async def _kill_all(self, fault: Fault) -> None:
        async with AsyncExitStack() as stack:
            for role in self._tier(fault):
                await stack.enter_async_context(self._roles.held(role))
            self._count(fault.kind)
            await asyncio.gather(*(self._roles.kill(role) for role in self._tier(fault)))
            await asyncio.sleep(fault.seconds)

    async def _rolling(self, fault: Fault) -> None:
        roles = self._tier(fault)
        self._count(fault.kind)
        for role in roles:
            async with self._roles.held(role):
                await self._roles.terminate(role)
            await asyncio.sleep(fault.seconds / len(roles))

    async def _fill_disk(self, fault: Fault) -> None:
        if self._disk is None:
            return
        self._count(fault.kind)
        self._full += 1
        await self._disk.fill()
        await asyncio.sleep(fault.seconds)
        self._full -= 1
        if not self._full:
            self._disk.free()

    async def _fail_syncs(self, fault: Fault) -> None:
        cluster = self._roles.cluster
        if self._syncs is None or not cluster.is_running(fault.target):
            return
        async with self._roles.held(fault.target):
            if await self._syncs.begin(cluster.pid(fault.target)):
                self._count(fault.kind)
                await asyncio.sleep(fault.seconds)
            await self._roles.terminate(fault.target)  # the next process has no faults

    async def _link(self, fault: Fault) -> None:
        """A rule of the proxy, and perhaps a reset at its end."""
        self._count(fault.kind)
        rules = _rules(fault)
        for rule in rules:
            self._proxy.add(rule)
        await asyncio.sleep(fault.seconds)
        for rule in rules:
            if fault.then_reset:
                self._proxy.reset(rule.source, rule.target)
            self._proxy.remove(rule)


def _rules(fault: Fault) -> list[Rule]:
    match fault.kind:
        case Kind.ISOLATE:
            return [Rule("*", fault.target, BOTH), Rule(fault.target, "*", BOTH)]
        case Kind.BLOCK | Kind.EXPIRE:
            return [Rule(fault.source, fault.target, BOTH)]
        case Kind.LATE_OWNER:
            # Its session ends meanwhile, another server takes over, and then what it had sent arrives.
            return [
                Rule(fault.source, ZOOKEEPER, BOTH),
                Rule(fault.source, fault.target, frozenset({Direction.TO_TARGET})),
            ]
        case Kind.HALF_OPEN:
            return [Rule(fault.source, fault.target, frozenset({Direction(fault.way)}))]
        case Kind.LATENCY:
            return [Rule(fault.source, fault.target, latency_s=fault.latency_ms / 1000)]
        case Kind.SLOW:
            return [Rule(fault.source, fault.target, bytes_per_s=fault.bytes_per_s)]
    raise ValueError(f"{fault.kind} is no fault of a link")
