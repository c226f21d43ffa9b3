"""What comes before a session id is taken: do the nodes know more than ZooKeeper? (rule A8, ADR 8)

The replicas are asked with the session id that ZooKeeper holds now, which raises no fence above what
ZooKeeper gave out and disturbs no owner. A majority must have answered before an id is taken: an acknowledged
record of a session that ZooKeeper forgot lies on a majority, so one of those that answer has that session
written down. What a node proves is believed once ZooKeeper's leader confirms that it still holds what was
read; then it is a fault: no id is taken, nothing is changed.

A fence alone proves nothing that could be lost: whoever raised it has completed no session there. If it is in
reach the next id is taken above it; a node whose fence is out of reach cannot be used, and if too few are
left that is a fault as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from waltz_cluster.older_copy import FENCE_REACH, evidence, last_listed
from waltz_cluster.quorum import quorum_of, shortage
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.errors import RequestFailedError, WaltzProtocolError
from waltz_protocol.fence_refusal import fence_in
from waltz_protocol.types import SessionInfo
from waltz_server.store.api import ReplicaPhase, ReplicaStatus, StoreState
from waltz_server.store.metadata_keeper import MetadataFaultError
from waltz_server.store.replica_connection import ReplicaLink, ReplicaUnavailableError
from waltz_server.store.session_context import SessionContext
from waltz_server.store.waiting import Signal, wait_for

_READ_AGAIN_SECONDS = 2.0
_UNREACHABLE_PAUSE_SECONDS = 0.1


class OpeningInterruptedError(Exception):
    """The replicas or the generation are others now, or the store is closed: begin again."""


class Owner(Protocol):
    """What is needed of the partition store: is the id still wanted, and who gets reports of the progress."""

    @property
    def state(self) -> StoreState: ...

    @property
    def closing(self) -> bool: ...

    @property
    def asked_for(self) -> tuple[tuple[str, ...], int]: ...

    def report(self, state: StoreState, reason: str) -> None: ...


class Taken(NamedTuple):
    """What ZooKeeper held, and what it holds since the session id was taken."""

    recorded: PartitionMetadata
    metadata: PartitionMetadata
    ends: tuple[int, ...] = ()
    """The last record of each node that answered before."""


class _Answer(NamedTuple):
    info: SessionInfo
    max_txid: int


class Opening:
    """Takes one session id. Owner: the task of the partition store; a new object for each attempt."""

    def __init__(
        self, store: Owner, context: SessionContext, replicas: Sequence[str], generation: int
    ) -> None:
        self.changed = Signal()
        self._store = store
        self._context = context
        self._replicas = tuple(replicas)
        self._generation = generation
        self._loop = asyncio.get_running_loop()
        self._quorum = quorum_of(len(replicas))
        self._recorded = PartitionMetadata()
        self._asked_anew = Signal()
        self._round = 0
        self._answers: dict[str, _Answer] = {}
        self._fences: dict[str, int] = {}
        self._problems: dict[str, str] = {}
        self._enough_since: float | None = None

    @property
    def replicas(self) -> list[ReplicaStatus]:
        """How far the question has come, for the health report."""
        return [
            ReplicaStatus(name, ReplicaPhase.CONNECTING, -1, 0, 0.0, "")
            if name in self._answers or name not in self._problems
            else ReplicaStatus(name, ReplicaPhase.ABSENT, -1, 0, 0.0, self._problems[name])
            for name in self._replicas
        ]

    async def take(self) -> Taken:
        """Ask, judge, take. Raises `MetadataFaultError` with what the nodes prove, `OpeningInterruptedError`,
        `GenerationMismatchError`, and what ZooKeeper raises."""
        if self._store.state is not StoreState.FAULT:  # which lasts until it is known that it is over
            self._store.report(StoreState.RECOVERING, "asking the replicas what they know")
        taken: Taken | None = None
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(self._ask(name)) for name in self._replicas]
            try:
                taken = await self._take()
            except Exception as error:
                failure = error  # raised below as it is, not wrapped in a group
            finally:
                for task in asking:
                    task.cancel()
        if taken is None:
            raise failure or OpeningInterruptedError("nothing was taken")
        self._raise_if_interrupted()  # the last look: whoever changes it from here on finds the session
        return taken

    async def _take(self) -> Taken:
        keeper = self._context.keeper
        while True:
            recorded, version = await keeper.recorded(self._generation)
            self._read(recorded)
            if not await self._enough():
                continue
            fault = self._fault()
            if fault is not None:
                if await keeper.is_current(version):
                    raise MetadataFaultError(fault)
                await asyncio.sleep(_UNREACHABLE_PAUSE_SECONDS)
                continue
            taken = await keeper.take(self._generation, recorded, version, self._least())
            if taken is not None:
                return Taken(recorded, taken, tuple(answer.max_txid for answer in self._answers.values()))

    def _read(self, recorded: PartitionMetadata) -> None:
        """Answers to questions of an earlier session say nothing about this one."""
        if recorded == self._recorded and self._round:
            return
        self._recorded = recorded
        self._round += 1
        self._answers, self._fences, self._problems = {}, {}, {}
        self._enough_since = None
        self._asked_anew.notify()

    async def _enough(self) -> bool:
        """Wait for the nodes; False when it is time to look into ZooKeeper again first."""
        read_again_at = self._loop.time() + _READ_AGAIN_SECONDS
        while True:
            ticket = self.changed.ticket()
            self._raise_if_interrupted()
            now = self._loop.time()
            ready_at = self._ready_at(now)
            if ready_at <= now:
                return True
            late = now >= read_again_at
            if late or len(self._answers.keys() | self._problems.keys()) == len(self._replicas):
                self._report_waiting()
            if late:
                return False
            await wait_for(ticket, min(ready_at, read_again_at) - now)

    def _ready_at(self, now: float) -> float:
        """When it can be judged. All were tried: at once. Else a quorum of those that remember a session is
        enough to continue with, and whoever else answers in a short time is heard: so that a fault names
        everybody, and after a session that listed nobody. That may have ended with such a fault, and ids that
        are taken one by one would pass what the node knows that was heard too late."""
        beyond = self._beyond_reach()
        if len(self._answers) < self._quorum and len(self._replicas) - len(beyond) >= self._quorum:
            return float("inf")
        tried = self._answers.keys() | self._problems.keys()
        intact = sum(answer.info.session_id >= 0 for answer in self._answers.values())
        listed = last_listed(self._recorded) == self._recorded.session_id
        if len(tried) == len(self._replicas) or (listed and intact >= self._quorum and self._fault() is None):
            return now
        if self._enough_since is None:
            self._enough_since = now
        return self._enough_since + self._context.settings.recovery_grace_seconds

    def _report_waiting(self) -> None:
        reasons = {
            name: "" if name in self._answers else self._problems.get(name, "not heard from yet")
            for name in self._replicas
        }
        self._store.report(StoreState.NO_QUORUM, shortage(reasons))

    # ---- judging

    def _fault(self) -> str | None:
        newer = [
            f"{name} {text}"
            for name, (info, max_txid) in self._answers.items()
            if (text := evidence(self._recorded, name, info, max_txid)) is not None
        ]
        if newer:
            return (
                f"ZooKeeper's metadata of this partition is older than its replicas: {'; '.join(sorted(newer))}. "
                "Nothing was changed; once ZooKeeper is as it should be, `waltz zk accept-restored` is the way out"
            )
        beyond = self._beyond_reach()
        if len(self._replicas) - len(beyond) < self._quorum:
            names = ", ".join(f"{name} takes session {beyond[name]} or later" for name in sorted(beyond))
            return (
                f"the fences of too many replicas are out of reach: ZooKeeper holds session {self._recorded.session_id}, "
                f"{names}. `waltz storage lower-fence` is the way out"
            )
        return None

    def _beyond_reach(self) -> dict[str, int]:
        reach = self._recorded.session_id + FENCE_REACH
        return {name: fence for name, fence in self._fences.items() if fence > reach}

    def _least(self) -> int:
        """An id that some node has seen is not taken again."""
        reach = self._recorded.session_id + FENCE_REACH
        seen = [fence for fence in (*self._fences.values(), self._context.seen_fence) if fence <= reach]
        return max(seen, default=self._recorded.session_id) + 1

    def _raise_if_interrupted(self) -> None:
        if self._store.closing or self._store.asked_for != (self._replicas, self._generation):
            raise OpeningInterruptedError("the store has something else to do")

    # ---- asking

    async def _ask(self, name: str) -> None:
        """Ask one node once per round; again after a failure."""
        while True:
            ticket, number = self._asked_anew.ticket(), self._round
            pause: float | None = None
            if number:
                try:
                    link = await self._context.directory.get(name)
                    answer = await self._question(link, name)
                except (WaltzProtocolError, ReplicaUnavailableError) as error:
                    if number == self._round:
                        self._problems[name] = str(error)
                    pause = _UNREACHABLE_PAUSE_SECONDS
                    if isinstance(error, RequestFailedError):
                        pause = self._context.backoff_of(name).next_seconds()
                else:
                    if number == self._round:
                        self._answers[name] = answer
                self.changed.notify()
            await wait_for(ticket, pause)

    async def _question(self, link: ReplicaLink, name: str) -> _Answer:
        """Last session and last record, asked with the session that ZooKeeper holds; of a node whose fence is
        higher, with the session that it takes: that raises nothing either."""
        partition_id, session_id = self._context.partition_id, self._recorded.session_id
        number = self._round
        try:
            answer = await _asked(link, session_id, partition_id)
        except RequestFailedError as error:
            fence = fence_in(error.message, session_id)
            if fence is None or fence <= session_id:
                raise
        else:
            if number == self._round:
                self._fences.pop(name, None)  # it was restarted, or an administrator put it down
            return answer
        try:
            answer = await _asked(link, fence, partition_id)
        except RequestFailedError as error:
            higher = fence_in(error.message, fence)
            if higher is not None and higher > fence and number == self._round:
                self._fences[name] = session_id + FENCE_REACH + 1  # it does not say where
            raise
        if number == self._round:
            self._fences[name] = fence
        return answer


async def _asked(link: ReplicaLink, session_id: int, partition_id: int) -> _Answer:
    return _Answer(*await link.last_session_and_end(session_id, partition_id))
