"""One run of the nemesis: rounds of faults under load, each followed by healing and a look at everything;
then the end.

The end stops the writers, lets the readers catch up, reads the whole log once more with a fresh client, and
compares all replicas record by record.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.journals import Journals, overrides
from tests.integration.nemesis.administration import Administration
from tests.integration.nemesis.checks import Checker, LogReading
from tests.integration.nemesis.clients import CLIENTS, READERS, WRITERS, LoadProcesses
from tests.integration.nemesis.devices import failing_syncs, small_disk
from tests.integration.nemesis.faults import Faults
from tests.integration.nemesis.history import History
from tests.integration.nemesis.load.readers import Database
from tests.integration.nemesis.plan import Topology, plan_round
from tests.integration.nemesis.roles import Roles
from tests.integration.nemesis.wiring import ProxiedCluster, proxied_cluster
from tests.integration.replicas import administrator, compare_replicas
from waltz_admin.errors import AdminError
from waltz_client import WaltzClient
from waltz_client.errors import WaltzClientError
from waltz_cluster.errors import ClusterError
from waltz_tools.local import LocalSettings

PARTITIONS = 4
ROUND_SECONDS = 45.0
SHORTEST_ROUND_SECONDS = 10.0
END_SECONDS = 25.0
"""Kept free for start and end of a run."""
PROGRESS_SECONDS = 60.0
"""After healing, every writer must have an append acknowledged in every partition within this."""
CATCH_UP_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_SMALL_DISK, _FAILING_SYNCS = "storage-2", "storage-3"


@dataclass(frozen=True)
class Settings:
    """What to run. `round_seconds` is how long faults continue before everything is healed and looked at."""

    directory: Path
    seed: int
    minutes: float
    tls: bool = True
    round_seconds: float = ROUND_SECONDS
    journals: Journals = Journals.NONE
    say: Callable[[str], None] = print


@dataclass
class Result:
    """What the table is made of."""

    rounds: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    pairs: dict[tuple[str, str], int] = field(default_factory=dict)
    acknowledged: int = 0
    failed: int = 0
    undecided: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    records: int = 0
    longest_gap_seconds: float = 0.0
    longest_recovery_seconds: float = 0.0
    restarted: int = 0
    verified: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class NotInTime(Exception):
    """Something that must happen within a bound after healing did not."""


async def run(settings: Settings) -> Result:
    """Everything from start to end; nothing is left running, whatever happens."""
    rng = random.Random(settings.seed)
    cluster_directory = settings.directory / "cluster"
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(cluster_directory / _SMALL_DISK))
        syncs = failing_syncs(settings.directory)
        wrappers = {_FAILING_SYNCS: syncs.wrapper} if syncs else {}
        local = LocalSettings(
            cluster_directory,
            storage_nodes=3,
            servers=2,
            partitions=PARTITIONS,
            tls=settings.tls,
            overrides=overrides(settings.journals),
            wrappers=wrappers,
            stop_timeout_seconds=30.0,
        )
        pids: dict[str, Callable[[], dict[str, int]]] = {}
        async with proxied_cluster(local, rng, lambda: pids["clients"]() if pids else {}) as (cluster, proxy):
            ways = (cluster.client_config, cluster.application_config)  # ZooKeeper, and servers in its place
            clients = LoadProcesses(settings.directory / "load", ways, settings.seed)
            pids["clients"] = clients.pids
            roles = Roles(cluster, clients)
            faults = Faults(roles, proxy, disk, syncs)
            topology = Topology(
                tuple(cluster.storage_roles),
                tuple(cluster.server_roles),
                tuple(CLIENTS),
                _SMALL_DISK if disk else None,
                _FAILING_SYNCS if syncs else None,
            )
            nemesis = Nemesis(settings, roles, faults, topology)
            try:
                result = await nemesis.run()
            finally:
                await clients.kill_all()
            result.pairs = dict(proxy.pairs)
            return result


class Nemesis:
    """The rounds and the end."""

    def __init__(self, settings: Settings, roles: Roles, faults: Faults, topology: Topology) -> None:
        self._settings = settings
        self._roles = roles
        self._faults = faults
        self._topology = topology
        self._history = History(roles.clients.directory)
        self._checker = Checker(self._history, LogReading(PARTITIONS))
        self._admin = Administration(roles.cluster)
        self._result = Result()
        self._say = settings.say

    @property
    def _cluster(self) -> ProxiedCluster:
        return self._roles.cluster

    async def run(self) -> Result:
        started = time.monotonic()
        run_seconds = self._settings.minutes * 60 - END_SECONDS
        # The same for every round of a run, so that the seed alone decides the faults.
        round_seconds = min(self._settings.round_seconds, max(run_seconds, SHORTEST_ROUND_SECONDS))
        result = self._result
        for role in CLIENTS:
            await self._roles.start(role)
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(each) for each in (self._roles.supervise(), self._admin.run())]
            try:
                await self._healed(started)
                begun = time.monotonic()
                while result.rounds == 0 or time.monotonic() - started < run_seconds - round_seconds / 2:
                    result.rounds += 1
                    await self._round(result.rounds, round_seconds)
                result.longest_gap_seconds = self._history.longest_gap_seconds(begun, time.monotonic())
                await self._finish()
            except NotInTime as late:
                self._violated([f"no progress: {late}"])
            except (AdminError, ClusterError, WaltzClientError) as error:
                self._violated([f"no answer after healing: {error}"])
            for helper in helpers:
                helper.cancel()
        self._violated([*self._roles.findings, *self._admin.findings])
        self._violated(self._roles.unforeseen())
        history = self._history
        result.faults = {str(kind): count for kind, count in self._faults.counts.items()}
        result.acknowledged, result.failed = len(history.acknowledged), len(history.failed)
        result.undecided, result.failures = history.undecided, dict(history.failures)
        result.lost = sum(each.startswith("lost") for each in result.violations)
        result.restarted = self._roles.restarted
        result.verified = dict(self._admin.counts)
        return result

    async def _round(self, number: int, seconds: float) -> None:
        plan = plan_round(self._settings.seed, number, seconds, self._topology)
        self._say(f"round {number}: {len(plan)} faults in {seconds:.0f} s")
        for fault in plan:
            self._say(f"  {fault}")
        before = len(self._history.acknowledged)
        await self._faults.run(plan)
        took = await self._healed(time.monotonic())
        self._result.longest_recovery_seconds = max(self._result.longest_recovery_seconds, took)
        await self._look()
        acknowledged = len(self._history.acknowledged) - before
        self._say(
            f"round {number}: acknowledged {acknowledged:,}, all well {took:.1f} s after healing, log {len(self._checker.log):,}"
        )

    async def _healed(self, since: float) -> float:
        """Wait until everybody runs, is caught up and makes progress; the seconds it took."""
        try:
            await self._roles.all_ready()
            async with administrator(self._cluster) as admin:
                await admin.wait_complete()
        except (AssertionError, TimeoutError) as error:
            raise NotInTime(f"cluster not complete after healing: {error}") from None
        wanted = {(role, partition) for role in WRITERS for partition in range(PARTITIONS)}
        latest = self._history.latest

        def waiting() -> list[tuple[str, int]]:
            self._history.update()
            return sorted(each for each in wanted if latest.get(each, 0.0) <= since)

        await _until(lambda: not waiting(), PROGRESS_SECONDS, lambda: f"nothing acknowledged to {waiting()}")
        return time.monotonic() - since

    async def _look(self) -> None:
        """Read what is new in the log and hold everything against it."""
        self._checker.before_reading()
        await read_log(self._cluster.client_config, self._checker.log)
        self._violated(self._checker.after_reading())

    async def _finish(self) -> None:
        """Writes end; everybody reads to the end; one more reading of everything; replicas compared."""
        await asyncio.gather(*(self._stop(role) for role in WRITERS))
        await self._look()
        marks = self._checker.log.marks()
        await _until(
            lambda: not self._behind(marks),
            CATCH_UP_SECONDS,
            lambda: f"the log ends at {marks}: {self._behind(marks)}",
        )
        await asyncio.gather(*(self._stop(role) for role in READERS))
        await self._look()
        self._violated(self._checker.at_the_end())
        fresh = LogReading(PARTITIONS)
        await read_log(self._cluster.client_config, fresh)
        self._violated(fresh.violations)
        if fresh.fingerprint() != self._checker.log.fingerprint():
            self._violated(["fork: the whole log read again is not what was read piece by piece"])
        self._check_databases(fresh)
        try:
            async with administrator(self._cluster) as admin:
                await admin.wait_complete()
            self._result.records = await compare_replicas(self._cluster)
        except AssertionError as error:
            self._violated([f"replicas: {error}"])
        else:
            if self._result.records != len(fresh):
                self._violated(
                    [f"replicas hold {self._result.records} records, the log read has {len(fresh)}"]
                )

    async def _stop(self, role: str) -> None:
        self._roles.retire(role)
        await self._roles.terminate(role)

    def _behind(self, marks: dict[int, int]) -> list[str]:
        """Feeds and databases that have not come to the end of the log."""
        self._history.update()
        late = []
        for role in READERS:
            if CLIENTS[role] == "consumer":
                with self._database(role) as database:
                    reached = database.marks()
            else:
                reached = {p: self._history.delivered.get((role, p), -1) for p in marks}
            if reached != marks:
                late.append(f"{role} is at {reached}")
        return late

    def _database(self, role: str) -> Database:
        return Database(self._roles.clients.directory / f"{role}.sqlite", PARTITIONS)

    def _check_databases(self, log: LogReading) -> None:
        for role in READERS:
            if CLIENTS[role] == "consumer":
                with self._database(role) as database:
                    self._violated(
                        [
                            f"database of {role}: partition {p} is not what the log says"
                            for p in range(PARTITIONS)
                            if database.row(p).encode() != log.row_at(p).encode()
                        ]
                    )

    def _violated(self, violations: list[str]) -> None:
        for each in violations:
            self._say(f"VIOLATION {each}")
        self._result.violations += violations


async def read_log(config: Path, log: LogReading) -> None:
    """Add what the cluster has beyond `log`, as a client sees it that was never there before."""
    async with WaltzClient.connect(config) as client:
        marks = log.marks()
        until = {p: await client.high_water_mark(p, deadline_seconds=PROGRESS_SECONDS) for p in marks}
        async with client.feed([p for p in marks if until[p] >= 0], after=marks, until=until) as feed:
            async for each in feed:
                log.add(each.partition_id, each.transaction_id, each.header, each.data or b"")


async def _until(done: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
    """Look again and again; NotInTime with the reason after `seconds`."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise NotInTime(f"after {seconds:.0f} s: {why()}")
        await asyncio.sleep(_LOOK_SECONDS)
