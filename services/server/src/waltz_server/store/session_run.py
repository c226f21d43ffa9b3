"""One store session from its session id to its end: recovery, metadata, settlement, service, drain.

The run is what ties the parts together: the pure `Recovery`, one `ReplicaRecovery` per replica, the
`MetadataKeeper` and the `StoreSession`. It lives inside the task of the partition store and owns the tasks of
its replicas.

Order that must not change (A3): recovery -> metadata listing a quorum written -> replicas enter with a voice
-> leftovers settled -> open. A late replica passes the same gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import structlog

from waltz_cluster.errors import ClusterError, ConnectionLostError
from waltz_cluster.quorum import quorum_of, shortage
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.types import RecordHeader
from waltz_server.store.api import AppendEntry, ReplicaPhase, ReplicaStatus, StoreState
from waltz_server.store.idle_check import another_copy
from waltz_server.store.leftovers import count_committed
from waltz_server.store.metadata_keeper import SessionSupersededError
from waltz_server.store.postponed import NEVER, Postponed
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Condition
from waltz_server.store.replica_connection import ReplicaLink
from waltz_server.store.replica_recovery import ReplicaRecovery, tail_of
from waltz_server.store.session import StoreSession
from waltz_server.store.session_context import SessionContext, SessionEnded
from waltz_server.store.waiting import Signal, wait_for

log = structlog.get_logger(__name__)

_STATES = {
    Condition.GATHERING: StoreState.RECOVERING,
    Condition.COPYING: StoreState.RECOVERING,
    Condition.COMPLETE: StoreState.RECOVERING,
    Condition.NO_QUORUM: StoreState.NO_QUORUM,
    Condition.UNDECIDABLE: StoreState.UNDECIDABLE,
    Condition.FAULT: StoreState.FAULT,
}
_FIRST_CHECK_SECONDS = 2.0
_LAST_CHECK_SECONDS = 5.0
_LISTING_RETRY_SECONDS = 0.5
_ZOOKEEPER_SECONDS = 2.0


class SessionHost(Protocol):
    """Whom a session run reports to: the partition store. All of it is called on the loop."""

    def report(self, state: StoreState, reason: str) -> None:
        """How far the session is."""

    def settle(self, committed: int) -> None:
        """The first `committed` leftovers are in the resolved log, the others are not and never will be."""

    def session_opened(self, resolved: int) -> None:
        """Recovery is complete, leftovers are settled: appends flow."""

    def commit(self, entries: list[AppendEntry], size_bytes: int) -> None:
        """A batch is durable on a quorum."""

    def stopped(self, state: StoreState, reason: str) -> None:
        """No more appends; what is in flight may still be committed."""

    def session_ended(self, left: list[AppendEntry], reason: str) -> None:
        """The session is over; `left` waits for the next one's log. Called once, whatever the end."""


class SessionOutcome(NamedTuple):
    """How a session went that ended without an error of our own."""

    reason: str
    replaced: bool
    """It was to be replaced, and in order."""
    open_seconds: float | None
    """How long appends could flow; None if it never opened."""


class SessionRun:
    """Runs one session. Owner: the partition store, which calls `run` once."""

    def __init__(
        self,
        host: SessionHost,
        context: SessionContext,
        *,
        replicas: Sequence[str],
        metadata: PartitionMetadata,
        recorded_session: int,
        acknowledged: int,
        leftovers: Sequence[AppendEntry],
        ends: Sequence[int] = (),
    ) -> None:
        """`recorded_session` is what ZooKeeper held before this session took its id, `metadata` what it holds
        since. The recovery may not end below `acknowledged`; `leftovers` are settled before the session
        opens. `ends`: the last records of replicas, as far as they are known before the fence."""
        self.session: StoreSession | None = None
        self.open_session: StoreSession | None = None
        """The session from when it opens until it ends."""
        self.changed = Signal()
        self._host = host
        self._context = context
        self._settings = context.settings
        self._session_id = metadata.session_id
        self._leftovers = leftovers
        self._loop = asyncio.get_running_loop()
        self._recovery = Recovery(
            partition_id=context.partition_id,
            session_id=self._session_id,
            replicas=replicas,
            metadata=metadata,
            recorded_session=recorded_session,
            acknowledged=acknowledged,
        )
        self._members = {
            name: ReplicaRecovery(self, context, self._recovery, self._session_id, name, tail_of(ends))
            for name in replicas
        }
        self._opened_at: float | None = None
        self._replaced = False
        self._quorum = quorum_of(len(replicas))
        self._restart_at: float | None = None
        self._restart_reason = ""
        self._postponed = Postponed(context.cut_short_seconds, self._settings.recovery_grace_seconds)
        self._end_now: str | None = None
        self._check_at = self._loop.time() + _FIRST_CHECK_SECONDS
        self._check_every = _FIRST_CHECK_SECONDS
        self._quorum_since: float | None = None
        self._doubted: dict[str, str] = {}
        """Replicas that are out if the session is still ours, and why."""

    # ---- what the store asks

    @property
    def problem(self) -> str:
        """Why a quorum of the replicas is not expected to take a write now; empty when it is."""
        return shortage({name: self._trouble_of(name) for name in self._members})

    def replicas(self, mark: int) -> list[ReplicaStatus]:
        """How each replica is, for the health report; `mark` is the committed mark."""
        return [self._status_of(name, member, mark) for name, member in self._members.items()]

    def _status_of(self, name: str, member: ReplicaRecovery, mark: int) -> ReplicaStatus:
        acked = -1 if self.session is None else self.session.votes.durable(name)
        phase, replica = member.phase, member.replica
        if phase is ReplicaPhase.VOTING and replica is not None and not replica.live:
            phase = ReplicaPhase.CATCHING_UP
        latency_ms = 0.0 if replica is None else replica.latency_seconds * 1000
        reason = member.reason or self._recovery.reason_of(name) or self._silence_of(name)
        return ReplicaStatus(name, phase, acked, max(0, mark - max(acked, -1)), latency_ms, reason)

    def _trouble_of(self, name: str) -> str:
        if self.session is not None and self.session.votes.has_voice(name):
            return self._silence_of(name)
        member = self._members[name]
        return member.reason or member.phase.value

    def _silence_of(self, name: str) -> str:
        return self._context.directory.idle_check.problem(name)

    # ---- what others report to the run

    def restart(self, reason: str, delay_seconds: float = 0.0) -> None:
        """Replace the session: soon, in order (what is in flight is committed first)."""
        at = self._loop.time() + delay_seconds
        if self._restart_at is None or at < self._restart_at:
            self._restart_at, self._restart_reason = at, reason
        self.changed.notify()

    def end(self, reason: str) -> None:
        """End the session now."""
        if self._end_now is None:
            self._end_now = reason
        self.changed.notify()

    def fault(self, error: Exception) -> None:
        """A callback of the session has failed half way: the recovery of the next one decides."""
        if self._end_now is None:
            reason, ids = f"internal error: {error!r}", (self._context.partition_id, self._session_id)
            log.error("a store session failed", partition=ids[0], session=ids[1], exc_info=error)
            self.end(reason)
            if self._opened_at is not None:
                self._host.stopped(StoreState.RECOVERING, reason)

    def suspect(self) -> None:
        """A node refused us: look soon whether the session is still ours."""
        self._check_at = min(self._check_at, self._loop.time())
        self.changed.notify()

    def look(self, name: str) -> Callable[[int | RequestFailedError], None]:
        """The idle check asks a replica's node what it holds; what is given is called with the answer. One
        that is not the copy which the session counts on is out, as with the append that it would refuse, if
        the session is still ours."""
        acknowledged = -1 if self.session is None else self.session.votes.durable(name)

        def said(answer: int | RequestFailedError) -> None:
            reason = another_copy(answer, self._session_id, acknowledged)
            if reason is not None and self.session is not None and self.session.votes.has_voice(name):
                self._doubted[name] = reason
                self.suspect()

        return said

    def replica_out(self, name: str, reason: str) -> None:
        """A replica is out of this session for good; only the next session can take it back. Before this one
        has opened it waits for that: the others may be enough."""
        self.note("replica is out of the session", replica=name, reason=reason)
        member = self._members[name]
        member.become_failed(reason)
        backoff = self._context.backoff_of(name)
        if (
            member.replica is not None
            and self._loop.time() - member.since > self._settings.max_retry_interval_ms / 1000
        ):
            backoff.reset()
        session = self.session
        if self._opened_at is None:
            self._postponed.add(name, reason, backoff.next_seconds(), self._loop.time())
            self.changed.notify()
        elif session is not None and not session.has_quorum:
            self.end(f"no quorum of voters is left: {name}: {reason}")
            self._host.stopped(StoreState.NO_QUORUM, f"no quorum of voters is left: {name}: {reason}")
        else:
            self.restart(f"{name} is out: {reason}", backoff.next_seconds())

    def link_of(self, name: str) -> ReplicaLink | None:
        member = self._members.get(name)
        return None if member is None else member.link

    def headers_of(self, name: str, first: int, count: int) -> list[RecordHeader] | None:
        member = self._members.get(name)
        return None if member is None else member.headers_at(first, count)

    def note(self, event: str, **values: str) -> None:
        """A line in the log."""
        log.info(event, partition=self._context.partition_id, session=self._session_id, **values)

    # ---- the run

    async def run(self) -> SessionOutcome:
        """Run the session to its end. Cancellation ends it at once."""
        reason = "cancelled"
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(member.run()) for member in self._members.values()]
                try:
                    await self._recover()
                    await self._open()
                    await self._serve()
                except Exception as error:
                    reason = str(error)
                    if not isinstance(error, (SessionEnded, SessionSupersededError)):
                        failure = error  # raised below as it is, not wrapped in a group
                finally:
                    for task in running:
                        task.cancel()
        finally:
            self._finish(reason)
        if failure is not None:
            raise failure
        opened_at = self._opened_at
        return SessionOutcome(
            reason, self._replaced, None if opened_at is None else self._loop.time() - opened_at
        )

    async def _recover(self) -> None:
        """Until a quorum is recovered and listed in ZooKeeper."""
        recovery = self._recovery
        grace_ends = self._loop.time() + self._settings.recovery_grace_seconds
        gathering = True
        while not recovery.complete:
            ticket = self.changed.ticket()
            now = self._loop.time()
            if gathering and (now >= grace_ends or all(m.tried for m in self._members.values())):
                gathering = False
                recovery.gather_over()
                self.changed.notify()
            condition, reason = recovery.condition()
            self._host.report(_STATES[condition], reason)
            if recovery.outdated:
                raise SessionEnded("a replica answers something else than when the fault was found")
            self._raise_if_ended()
            self._raise_if_cut_short(now)
            if condition is not Condition.FAULT and self._may_write(now):
                try:
                    await self._write_states()
                    continue
                except ClusterError as error:
                    self.note("cannot write replica states yet", reason=str(error))
                    await wait_for(ticket, _LISTING_RETRY_SECONDS)
                    continue
            await self._check_when_due()
            await wait_for(ticket, self._next_wake(now, grace_ends if gathering else None))

    def _may_write(self, now: float) -> bool:
        """A quorum is recovered, and the others had a moment to be in the same write."""
        recovery = self._recovery
        if not recovery.quorum_recovered:
            self._quorum_since = None
            return False
        if self._quorum_since is None:
            self._quorum_since = now
        return not recovery.in_progress or now - self._quorum_since >= self._settings.recovery_grace_seconds

    async def _write_states(self) -> None:
        """Write replica states; afterwards the listed ones have a voice. Where that succeeds the session is
        still ours: what is due as a question for it has its answer."""
        try:
            async with asyncio.timeout(_ZOOKEEPER_SECONDS):
                written = await self._context.keeper.write_states(self._recovery)
        except TimeoutError as error:
            raise ConnectionLostError("no answer from ZooKeeper in time") from error
        self._check_at = max(self._check_at, self._loop.time() + self._check_every)
        self._recovery.metadata_written(written)
        if self.session is not None:
            self._enter_listed()

    def _enter_listed(self) -> None:
        resolved = self._recovery.resolved
        if resolved is None or self.session is None:
            return
        recovered = set(self._recovery.recovered)
        entered = False
        for name, member in self._members.items():
            if member.phase is ReplicaPhase.FAILED:
                continue  # its own task, which the recovery hears it from, may not have run yet
            if self._recovery.is_listed(name) and name in recovered and member.replica is None:
                if member.link is None or member.link.closed:
                    self.replica_out(name, "the connection was closed before it could vote")
                else:
                    member.enter(resolved)
                    entered = True
        if entered:
            self.changed.notify()

    async def _open(self) -> None:
        """Give the listed replicas their voice, settle leftovers, open."""
        resolved = self._recovery.resolved
        if resolved is None:
            raise SessionEnded("recovery ended without a mark")
        self.session = StoreSession(
            partition_id=self._context.partition_id,
            session_id=self._session_id,
            resolved=resolved,
            quorum=self._quorum,
            settings=self._settings,
            list_request_size=self._context.list_request_size,
            on_committed=self._committed,
            on_replica_failed=self.replica_out,
            on_fault=self.fault,
        )
        self._enter_listed()
        if not self.session.has_quorum:
            raise SessionEnded("the quorum was lost while it was being listed")
        if self._leftovers:
            self._host.settle(await count_committed(self.session, self._leftovers, resolved))
        await self._raise_if_over()
        self._opened_at = self._loop.time()
        if not self.session.has_quorum:
            raise SessionEnded("the quorum was lost before the session opened")
        self.open_session = self.session
        self._context.cut_short_seconds = 0.0
        for reason, pause_seconds in self._postponed.opened():
            self.restart(reason, pause_seconds)
        self._host.session_opened(resolved)

    async def _serve(self) -> None:
        """Appends flow; late replicas join; until something asks for the next session."""
        session = self.session
        if session is None:
            return
        while True:
            ticket = self.changed.ticket()
            now = self._loop.time()
            if self._end_now is not None:
                raise SessionEnded(self._end_now)
            if self._restart_at is not None and now >= self._restart_at:
                self._host.stopped(StoreState.RECOVERING, self._restart_reason)
                await session.drained(self._settings.request_timeout_seconds)
                self._replaced = True
                raise SessionEnded(self._restart_reason)
            if self._recovery.unlisted:
                try:
                    await self._write_states()
                except ClusterError as error:
                    self.note("cannot list a late replica yet", reason=str(error))
                    await wait_for(ticket, _LISTING_RETRY_SECONDS)
                continue
            self._enter_listed()
            if now >= self._check_at:
                await self._check(now)
            await wait_for(ticket, self._next_wake(now, None, serving=True))

    def _committed(self, entries: list[AppendEntry], size_bytes: int) -> None:
        """Report it; replace the session when it has become long (forced new session)."""
        self._host.commit(entries, size_bytes)
        session = self.session
        if (
            session is not None
            and session.votes.committed - session.low_water_mark >= self._settings.checkpoint_interval
        ):
            self.restart("checkpoint interval reached")

    # ---- small things

    async def _raise_if_over(self) -> None:
        self._raise_if_ended()
        await self._check_when_due()

    def _raise_if_ended(self) -> None:
        if self._end_now is not None:
            raise SessionEnded(self._end_now)
        if self._restart_at is not None and self._loop.time() >= self._restart_at:
            self._replaced = True
            raise SessionEnded(self._restart_reason)

    def _raise_if_cut_short(self, now: float) -> None:
        """Replicas are out that only the next session takes back, and it is time for it."""
        recovery, postponed = self._recovery, self._postponed
        if not postponed:
            return
        only_to_be_listed = recovery.quorum_recovered and recovery.fault is None
        members = self._members.values()
        unheard = sum(not m.tried or (m.phase is ReplicaPhase.ABSENT and m.node_refused) for m in members)
        postponed.judge(
            now,
            only_to_be_listed=only_to_be_listed,
            advances=recovery.advances,
            may_advance=recovery.may_advance(unheard),
        )
        if now >= postponed.due_at:
            reason = postponed.cut_short(now)
            self._context.cut_short_seconds = postponed.cut_short_seconds
            self._replaced = True
            raise SessionEnded(reason)

    async def _check_when_due(self) -> None:
        now = self._loop.time()
        if now >= self._check_at:
            await self._check(now)

    async def _check(self, now: float) -> None:
        """Is the session still ours in ZooKeeper, and did nobody (an operator) change the states?"""
        self._check_at = now + self._check_every
        self._check_every = min(2 * self._check_every, _LAST_CHECK_SECONDS)
        if self._opened_at is not None:
            self._check_at = NEVER  # only when a node refuses us
        try:
            async with asyncio.timeout(_ZOOKEEPER_SECONDS):
                await self._context.keeper.check(self._session_id)
        except (ClusterError, TimeoutError) as error:
            self.note("cannot read partition metadata", reason=str(error))
            return
        doubted, self._doubted = self._doubted, {}
        for name, reason in doubted.items():
            if self.session is not None:
                self.session.fail_replica(name, reason)

    def _next_wake(self, now: float, grace_ends: float | None, *, serving: bool = False) -> float | None:
        times = [self._check_at] if serving else [self._check_at, self._postponed.due_at]
        if self._restart_at is not None:
            times.append(self._restart_at)
        if grace_ends is not None:
            times.append(grace_ends)
        if self._quorum_since is not None and not serving and self._recovery.fault is None:
            times.append(self._quorum_since + self._settings.recovery_grace_seconds)
        earliest = min(times)
        return None if earliest == NEVER else max(0.0, earliest - now) + 0.001

    def _finish(self, reason: str) -> None:
        self.open_session = None
        left: list[AppendEntry] = [] if self.session is None else self.session.end(reason)
        self._host.session_ended(left, reason)
