"""One seed: a cluster, what uses it, what goes wrong, and what must be true in the end.

Phases: build, serve under faults, heal (`ending`), progress, quiet, truth, check.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.sim.checkers.history import History, Truth
from tests.sim.checkers.silence import SilenceWatch
from tests.sim.checkers.suite import check_all
from tests.sim.checkers.violation import Violation
from tests.sim.cluster.access import Workload
from tests.sim.cluster.admin import Admin
from tests.sim.cluster.carried_marks import CarriedMarks
from tests.sim.cluster.client_role import ClientRole
from tests.sim.cluster.clients import Access
from tests.sim.cluster.detector_watch import DetectorWatch
from tests.sim.cluster.ending import Ending
from tests.sim.cluster.guards import NodeMemory, OwnershipWatch
from tests.sim.cluster.logs import captured_logs, describe
from tests.sim.cluster.result import Result
from tests.sim.cluster.role import Role
from tests.sim.cluster.server_role import ServerRole
from tests.sim.cluster.shape import make_shape, roomy, watched
from tests.sim.cluster.state import ClusterState
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.faults.apply import Applier
from tests.sim.faults.plan import DENSE, DETECTOR, JOURNAL, Fault, make_plan
from tests.sim.faults.repairs import Repairs
from tests.sim.kernel.disk import SimDisk
from tests.sim.kernel.loop import SimLoop, StuckError, TooSlowError
from tests.sim.kernel.process import current
from tests.sim.kernel.trace import Trace
from tests.sim.kernel.zookeeper import FOLLOWER_LAGS, SimZooKeeper
from waltz_cluster.memory_store import Fault as Loss

FAULTS_START = 5.0
FAULT_SECONDS = 130.0
STEP_LIMIT = 6_000_000
DOUBT_SLACK_SECONDS = 2.0
LOOK_SECONDS = 1.0


ChooseWorkloads = Callable[[int, random.Random], Sequence[Workload]]
"""(number of partitions, random numbers) -> the workloads of a seed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a seed is to run; `None` = all."""

    profile: str = "default"
    faults: frozenset[int] | None = None
    workloads: frozenset[str] | None = None
    second_opinion: bool = True
    """Also the independent linearizability checker, which costs most."""


class World:
    """One run. `run` once."""

    def __init__(
        self, seed: int, choice: Choice, choose: ChooseWorkloads, trace: Trace | None = None
    ) -> None:
        self.choice = choice
        self.loop = SimLoop(seed, trace, step_limit=STEP_LIMIT)
        self.shape = make_shape(self.loop.rng("shape"))
        if choice.profile == DENSE:
            self.shape = roomy(self.shape)
        if choice.profile == DETECTOR:
            self.shape = watched(self.shape, self.loop.rng("detector"))
        self.result = Result(seed, choice.profile)
        self.counts: Counter[str] = self.result.counts
        self.history = History(lambda: self.loop.now, self._note_violation)
        self._first_seen: dict[Violation, int] = {}
        self.storage: dict[str, StorageRole] = {}
        self.marks = CarriedMarks(lambda: self.shape, lambda partition_id: self.state.copies(partition_id))  # noqa: PLW0108
        self.servers: dict[str, ServerRole] = {}
        self.clients: dict[str, ClientRole] = {}
        workloads = choose(self.shape.partitions, self.loop.rng("workloads"))
        self.zookeeper = SimZooKeeper(self.loop)
        self.zookeeper.follower_lag = self.loop.rng("followers").choice(FOLLOWER_LAGS)
        if choice.profile == DETECTOR:
            self.zookeeper.follower_lag = FOLLOWER_LAGS[0]
        self._workloads = [w for w in workloads if choice.workloads is None or w.name in choice.workloads]
        self.plan: list[Fault] = []
        self.blocked: Counter[tuple[str, str]] = Counter()
        """How many faults block a direction between two hosts."""
        self.losses: dict[str, Callable[[], Loss | None]] = {}
        """Hosts whose ZooKeeper operations get lost, and how."""
        self.under_way: Counter[str] = Counter()
        """Kinds of faults that are under way."""

    def run(self) -> Result:
        """Run it to its end; never raises for what the product does. Its caller forgets it and calls
        `collect_remains`."""
        result = self.result
        with captured_logs(self._logged):
            try:
                self.loop.run(self._main(), collect=False)
            except (StuckError, TooSlowError) as error:
                self.violation("stuck", str(error))
            except Exception as error:
                self.violation("harness", describe(error))
        for found in self.loop.errors:
            raised = found.get("exception")
            text = describe(raised) if raised is not None else ""
            self.violation(
                "unhandled", f"{found['process']} at {found['time']:.3f}: {found.get('message')}: {text}"
            )
        result.violations = self.violations_as_seen()
        result.virtual_seconds = self.loop.time()
        result.steps = self.loop.steps
        result.digest = self.loop.trace.digest()
        self._count()
        return result

    # -- reports ------------------------------------------------------------------------------------------

    def violation(self, invariant: str, text: str) -> None:
        """Something that must not be."""
        violation = Violation(invariant, text)
        self._note_violation(violation)
        self.result.violations.append(violation)

    def violations_as_seen(self) -> list[Violation]:
        """All of them, in the order of the run."""
        return sorted([*self.result.violations, *self.history.violations], key=self._first_seen.__getitem__)

    def _note_violation(self, violation: Violation) -> None:
        self._first_seen.setdefault(violation, len(self._first_seen))
        self.loop.note(f"VIOLATION {violation.invariant}: {violation.text}")

    def unexpected(self, role: str, text: str) -> None:
        """A process ended in a way no fault explains."""
        if self.loop.ended:
            return
        self.violation("process_ended", f"{role} at {self.loop.now:.3f}: {text}")

    def _logged(self, level: int, text: str, error: BaseException | None) -> None:
        process = current()
        if self.loop.ended or (process is not None and not process.alive):
            return
        what = text if error is None else f"{text} [{describe(error)}]"
        self.loop.note(f"log {logging.getLevelName(level)} {what}")
        if level >= logging.ERROR and (error is not None or "internal error" in text):
            self.violation("logged_error", f"{process} at {self.loop.now:.3f}: {what}")

    def _count(self) -> None:
        self.counts["zookeeper sessions expired"] = self.zookeeper.expired
        self.counts["zookeeper answers lost"] = self.zookeeper.lost_operations
        self.counts["servers evicted"] = sum(role.evicted() for role in self.servers.values())
        self.counts["bytes saved by compressed blocks"] = sum(
            one.saved_bytes() for one in self.servers.values()
        )
        self.counts["committed marks that rose on nodes"] = self.marks.checked
        self.counts["torn power cuts"] = sum(role.disk.torn for role in self.storage.values())
        roles: list[Role] = [*self.storage.values(), *self.servers.values(), *self.clients.values()]
        self.counts["process starts"] = sum(role.incarnation for role in roles)
        self.counts.update(self.history.counts)

    # -- phases -------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        await self._build()
        applier = Applier(self)
        async with asyncio.TaskGroup() as tasks:
            for fault in self.plan:
                tasks.create_task(applier.apply(fault), name=f"fault {fault.number}")
            watch = tasks.create_task(OwnershipWatch(self.loop, self.servers, self.violation).run())
            if self.choice.profile == DETECTOR:
                tasks.create_task(DetectorWatch(self).run(FAULTS_START + FAULT_SECONDS))
            silence = self._watch_feeds(lambda: not applier.busy and self._calm())
            await asyncio.sleep(FAULTS_START + FAULT_SECONDS - self.loop.time())
            watch.cancel()
        silence.cancel()
        silence = self._watch_feeds(self._calm)
        await Ending(self).run()
        silence.cancel()

    def _watch_feeds(self, calm: Callable[[], bool]) -> asyncio.Task[None]:
        watch = SilenceWatch(self.history)

        async def look() -> None:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                watch.look(calm())

        return self.loop.create_task(look())

    def _calm(self) -> bool:
        """Nothing that explains why a reader gets nothing."""
        return (
            all(role.alive for role in (*self.servers.values(), *self.storage.values()))
            and not self.state.waits_for_lost_copies()
        )

    async def _build(self) -> None:
        loop, shape = self.loop, self.shape
        loop.network.default_latency_seconds = shape.latency_seconds
        self.zookeeper.choose_fault = self._zookeeper_loss
        self.admin = Admin(loop, self.zookeeper, shape)
        self.access = Access(loop, shape, self.zookeeper, self.history)
        self.history.session_timeout_seconds = shape.session_timeout_seconds
        key = await self.admin.create_cluster()
        for name in shape.storage_names():
            disk = SimDisk(loop.rng(f"disk {name}"))
            memory = NodeMemory(name, self.violation, self.marks)
            self.storage[name] = StorageRole(loop, name, self.unexpected, shape, key, disk, memory)
            self.storage[name].heal_disk()
            if self.choice.profile == JOURNAL:
                self.storage[name].journals = loop.rng(f"journal {name}")
        for name in shape.server_names():
            self.servers[name] = ServerRole(loop, name, self.unexpected, shape, self.zookeeper)
        self.state = ClusterState(
            self.zookeeper, self.storage, self.servers, shape.partitions, self.history.book.mark
        )
        for name, node in self.storage.items():
            node.memory.damaged = partial(self.state.changed_partitions, name)
            node.memory.lost = partial(self.state.lost_partitions, name)
        self.repairs = Repairs(self)
        for workload in self._workloads:
            for name, main in workload.processes(self.access):
                self.clients[name] = ClientRole(loop, name, self.unexpected, main)
        plan = make_plan(
            loop.rng, shape, sorted(self.clients), FAULTS_START, FAULT_SECONDS, self.choice.profile
        )
        chosen = self.choice.faults
        self.plan = [fault for fault in plan if chosen is None or fault.number in chosen]
        self.result.faults = self.plan
        self.result.workloads = [workload.name for workload in self._workloads]
        for storage in self.storage.values():
            storage.start()
        while not self.state.told():  # a follower of ZooKeeper that lags knows of no assignment yet
            await self.admin.sync_partitions(30.0)
        for role in (*self.servers.values(), *self.clients.values()):
            role.start()

    def check(self, truth: Truth) -> None:
        """Everything that can only be judged in the end."""
        found, figures = check_all(self.history, truth, second_opinion=self.choice.second_opinion)
        self.counts.update(figures)
        for violation in found:
            self.violation(violation.invariant, violation.text)

    def _zookeeper_loss(self, host: str, _operation: str, _path: str) -> Loss | None:
        draw = self.losses.get(host)
        return None if draw is None else draw()

    @contextmanager
    def doubt(self) -> Iterator[None]:
        """Meanwhile, and for a session timeout more, a server may not know that it has been replaced."""
        start = self.loop.now
        try:
            yield
        finally:
            more = self.shape.session_timeout_seconds + DOUBT_SLACK_SECONDS
            self.history.doubts.append((start, self.loop.now + more))

    def roles(self) -> dict[str, Role]:
        """Every role by its name."""
        return {**self.storage, **self.servers, **self.clients}
