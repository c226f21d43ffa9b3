"""One store session from its session id to its end: recovery, metadata, settlement, service, drain.

The run is what ties the parts together: the pure `Recovery`, one `ReplicaRecovery` per replica, the
`MetadataKeeper` and the `StoreSession`. It lives inside the task of the partition store and owns the tasks of
its replicas.

Order that must not change (A3): recovery -> metadata listing a quorum written -> replicas enter with a voice
-> leftovers settled -> open. A late replica passes the same gate.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from waltz_cluster.errors import ClusterError, ConnectionLostError
from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.errors import WaltzProtocolError
from waltz_server.store.api import AppendEntry, StoreState
from waltz_server.store.metadata_keeper import SessionSupersededError
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Condition
from waltz_server.store.replica_connection import ReplicaLink
from waltz_server.store.replica_recovery import ReplicaRecovery
from waltz_server.store.session import StoreSession
from waltz_server.store.waiting import Signal, wait_for

if TYPE_CHECKING:
    from waltz_server.store.quorum_store import QuorumPartitionStore

_log = logging.getLogger(__name__)

_STATES = {
    Condition.GATHERING: StoreState.RECOVERING,
    Condition.COPYING: StoreState.RECOVERING,
    Condition.COMPLETE: StoreState.RECOVERING,
    Condition.NO_QUORUM: StoreState.NO_QUORUM,
    Condition.UNDECIDABLE: StoreState.UNDECIDABLE,
    Condition.FAULT: StoreState.FAULT,
}
_FIRST_CHECK_SECONDS = 1.0
_LAST_CHECK_SECONDS = 5.0
_LISTING_RETRY_SECONDS = 0.5
_ZOOKEEPER_SECONDS = 2.0
_SETTLE_HEADERS = 1000


class SessionEnded(Exception):
    """The session is over; the message says why."""


class SessionRun:
    """Runs one session. Owner: `QuorumPartitionStore.run`."""

    def __init__(
        self,
        store: QuorumPartitionStore,
        replicas: Sequence[str],
        metadata: PartitionMetadata,
        recorded_session: int,
    ) -> None:
        """`recorded_session` is what ZooKeeper held before this session took its id, `metadata` what it holds
        since."""
        self.loop = asyncio.get_running_loop()
        self.store = store
        self.settings = store.settings
        self.directory = store.directory
        self.partition_id = store.partition_id
        self.session_id = metadata.session_id
        self.recovery = Recovery(
            partition_id=store.partition_id,
            session_id=self.session_id,
            replicas=replicas,
            metadata=metadata,
            recorded_session=recorded_session,
            acknowledged=store.acknowledged,
        )
        self.session: StoreSession | None = None
        self.changed = Signal()
        self.members = {name: ReplicaRecovery(self, name, store.backoff_of(name)) for name in replicas}
        self.opened = False
        self.opened_at = float("inf")
        self.replaced = False
        self._quorum = quorum_of(len(replicas))
        self._restart_at: float | None = None
        self._restart_reason = ""
        self._end_now: str | None = None
        self._check_at = self.loop.time() + _FIRST_CHECK_SECONDS
        self._check_every = _FIRST_CHECK_SECONDS
        self._quorum_since: float | None = None

    # ---- what others tell the run

    def restart(self, reason: str, delay_seconds: float = 0.0) -> None:
        """Replace the session: soon, in order (what is in flight is committed first)."""
        at = self.loop.time() + delay_seconds
        if self._restart_at is None or at < self._restart_at:
            self._restart_at, self._restart_reason = at, reason
        self.changed.notify()

    def end(self, reason: str) -> None:
        """End the session now."""
        if self._end_now is None:
            self._end_now = reason
        self.changed.notify()

    def suspect(self) -> None:
        """A node refused us: look soon whether the session is still ours."""
        self._check_at = min(self._check_at, self.loop.time())
        self.changed.notify()

    def replica_out(self, name: str, reason: str) -> None:
        """A replica is out of this session for good; only the next session can take it back."""
        self.note(f"{name} is out of session {self.session_id}: {reason}")
        member = self.members[name]
        if member.state != "failed":
            member.state, member.reason = "failed", reason
        backoff = self.store.backoff_of(name)
        if (
            member.replica is not None
            and self.loop.time() - member.since > self.settings.max_retry_interval_ms / 1000
        ):
            backoff.reset()
        session = self.session
        if self.opened and session is not None and not session.has_quorum:
            self.end(f"no quorum of voters is left: {name}: {reason}")
            self.store.stopped(StoreState.NO_QUORUM, f"no quorum of voters is left: {name}: {reason}")
        else:
            self.restart(f"{name} is out: {reason}", backoff.next_seconds())

    def link_of(self, name: str) -> ReplicaLink | None:
        member = self.members.get(name)
        return None if member is None else member.link

    def trouble_of(self, name: str) -> str:
        """Why the replica is not expected to take a write now; empty when it votes and its node answers."""
        if self.session is not None and self.session.votes.has_voice(name):
            return self.directory.idle_check.trouble(name)
        member = self.members[name]
        return member.reason or member.state

    def note(self, message: str) -> None:
        _log.info("partition %d, session %d: %s", self.partition_id, self.session_id, message)

    # ---- the run

    async def run(self) -> str:
        """Run the session to its end and return the reason. Cancellation ends it at once."""
        reason = "cancelled"
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(member.run()) for member in self.members.values()]
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
        return reason

    async def _recover(self) -> None:
        """Until a quorum is recovered and listed in ZooKeeper."""
        recovery, store = self.recovery, self.store
        grace_ends = self.loop.time() + self.settings.recovery_grace_seconds
        gathering = True
        while not recovery.complete:
            ticket = self.changed.ticket()
            now = self.loop.time()
            if gathering and (now >= grace_ends or all(m.tried for m in self.members.values())):
                gathering = False
                recovery.gather_over()
                self.changed.notify()
            condition, reason = recovery.condition()
            store.report(_STATES[condition], reason)
            await self._raise_if_over()
            if condition is not Condition.FAULT and self._may_write(now):
                try:
                    await self._write_states()
                    continue
                except ClusterError as error:
                    self.note(f"cannot write replica states yet: {error}")
                    await wait_for(ticket, _LISTING_RETRY_SECONDS)
                    continue
            await wait_for(ticket, self._next_wake(now, grace_ends if gathering else None))

    def _may_write(self, now: float) -> bool:
        """A quorum is recovered, and the others had a moment to be in the same write."""
        recovery = self.recovery
        if not recovery.quorum_recovered:
            self._quorum_since = None
            return False
        if self._quorum_since is None:
            self._quorum_since = now
        return not recovery.in_progress or now - self._quorum_since >= self.settings.recovery_grace_seconds

    async def _write_states(self) -> None:
        """Write replica states; afterwards the listed ones have a voice."""
        try:
            async with asyncio.timeout(_ZOOKEEPER_SECONDS):
                written = await self.store.keeper.write_states(self.recovery)
        except TimeoutError as error:
            raise ConnectionLostError("no answer from ZooKeeper in time") from error
        self.recovery.metadata_written(written)
        if self.session is not None:
            self._enter_listed()

    def _enter_listed(self) -> None:
        resolved = self.recovery.resolved
        if resolved is None or self.session is None:
            return
        recovered = set(self.recovery.recovered)
        entered = False
        for name, member in self.members.items():
            if self.recovery.is_listed(name) and name in recovered and member.replica is None:
                if member.link is None or member.link.closed:
                    self.replica_out(name, "the connection was closed before it could vote")
                else:
                    member.enter(resolved)
                    entered = True
        if entered:
            self.changed.notify()

    async def _open(self) -> None:
        """Give the listed replicas their voice, settle leftovers, open."""
        resolved = self.recovery.resolved
        if resolved is None:
            raise SessionEnded("recovery ended without a mark")
        self.session = StoreSession(
            partition_id=self.partition_id,
            session_id=self.session_id,
            resolved=resolved,
            quorum=self._quorum,
            settings=self.settings,
            list_request_size=self.store.list_request_size,
            on_committed=self.store.commit,
            on_replica_failed=self.replica_out,
        )
        self._enter_listed()
        if not self.session.has_quorum:
            raise SessionEnded("the quorum was lost while it was being listed")
        await self._settle(resolved)
        await self._raise_if_over()
        self.opened, self.opened_at = True, self.loop.time()
        if not self.session.has_quorum:
            raise SessionEnded("the quorum was lost before the session opened")
        self.store.session_opened(self, resolved)

    async def _settle(self, resolved: int) -> None:
        """Decide the leftovers of the previous session one by one, by (TXID, ReqId) in the resolved log
        (A4)."""
        leftovers = self.store.leftovers
        if not leftovers:
            return
        committed = 0
        undecided = [entry for entry in leftovers if entry.transaction_id <= resolved]
        while committed < len(undecided):
            first = undecided[committed].transaction_id
            count = min(_SETTLE_HEADERS, len(undecided) - committed)
            found = await self._read_req_ids(first, count)
            matching = 0
            for entry, req_id in zip(undecided[committed:], found, strict=False):
                if entry.req_id != req_id:
                    break
                matching += 1
            committed += matching
            if matching < len(found):
                break
        self.store.settle(committed)

    async def _read_req_ids(self, first: int, count: int) -> list[bytes]:
        if self.session is None:
            raise SessionEnded("settlement without a session")
        problems: list[str] = []
        for name, replica in list(self.session.replicas.items()):
            if replica.ended:
                continue
            try:
                headers = await replica.link.record_header_list(
                    self.session_id, self.partition_id, first, count
                )
            except WaltzProtocolError as error:
                problems.append(f"{name}: {error}")
                continue
            if headers and all(h.transaction_id == first + i for i, h in enumerate(headers)):
                return [header.req_id.pack() for header in headers[:count]]
            problems.append(f"{name} has no record {first}")
        raise SessionEnded(f"leftover appends cannot be settled: {'; '.join(problems)}")

    async def _serve(self) -> None:
        """Appends flow; late replicas join; until something asks for the next session."""
        session = self.session
        if session is None:
            return
        while True:
            ticket = self.changed.ticket()
            now = self.loop.time()
            if self._end_now is not None:
                raise SessionEnded(self._end_now)
            if self._restart_at is not None and now >= self._restart_at:
                self.store.stopped(StoreState.RECOVERING, self._restart_reason)
                await session.drained(self.settings.request_timeout_seconds)
                self.replaced = True
                raise SessionEnded(self._restart_reason)
            if self.recovery.unlisted:
                try:
                    await self._write_states()
                except ClusterError as error:
                    self.note(f"cannot list a late replica yet: {error}")
                    await wait_for(ticket, _LISTING_RETRY_SECONDS)
                continue
            self._enter_listed()
            if now >= self._check_at:
                await self._check(now)
            await wait_for(ticket, self._next_wake(now, None, serving=True))

    def checkpoint(self) -> None:
        """Called after commits: replace the session when it has become long (forced new session)."""
        session = self.session
        if (
            session is not None
            and session.committed - session.low_water_mark >= self.settings.checkpoint_interval
        ):
            self.restart("checkpoint interval reached")

    # ---- small things

    async def _raise_if_over(self) -> None:
        now = self.loop.time()
        if self._end_now is not None:
            raise SessionEnded(self._end_now)
        if self._restart_at is not None and now >= self._restart_at:
            self.replaced = True
            raise SessionEnded(self._restart_reason)
        if now >= self._check_at:
            await self._check(now)

    async def _check(self, now: float) -> None:
        """Is the session still ours in ZooKeeper, and did nobody (an operator) change the states?"""
        self._check_at = now + self._check_every
        self._check_every = min(2 * self._check_every, _LAST_CHECK_SECONDS)
        if self.opened:
            self._check_at = float("inf")  # only when a node refuses us
        try:
            async with asyncio.timeout(_ZOOKEEPER_SECONDS):
                await self.store.keeper.check(self.session_id)
        except (ClusterError, TimeoutError) as error:
            self.note(f"cannot look at partition metadata: {error}")

    def _next_wake(self, now: float, grace_ends: float | None, *, serving: bool = False) -> float | None:
        times = [self._check_at]
        if self._restart_at is not None:
            times.append(self._restart_at)
        if grace_ends is not None:
            times.append(grace_ends)
        if self._quorum_since is not None and not serving:
            times.append(self._quorum_since + self.settings.recovery_grace_seconds)
        earliest = min(times)
        return None if earliest == float("inf") else max(0.0, earliest - now) + 0.001

    def _finish(self, reason: str) -> None:
        left: list[AppendEntry] = [] if self.session is None else self.session.end(reason)
        self.store.session_ended(self, left, reason)
