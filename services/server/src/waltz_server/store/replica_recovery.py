"""Carrying out recovery on one replica: connect, fence, answer, then the steps `Recovery` asks for.

Who may try again within a session: a replica may, as long as nothing it was asked to change is in doubt. Once
a Truncate, Append or Set low-water mark ended without an answer, that request may still be executed at any
time while this session is the node's latest, so the replica stays out until a later session has fenced it.

A copy may also be taken away under our feet: an administrator removes and assigns the partition while the
connection stays. What the node said before is then void. The last record is therefore asked for again after
the mark was set; and a node of ours that has this session written down when its copy is removed refuses this
session from then on: only the next one may fill its new copy. Such a refusal meets the first question of a
new attempt; later ones may be passing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from waltz_cluster.older_copy import FENCE_REACH
from waltz_protocol.errors import (
    ChannelClosedError,
    RequestFailedError,
    RequestTimeoutError,
    WaltzProtocolError,
)
from waltz_protocol.fence_refusal import named_fence
from waltz_protocol.types import RecordHeader, SessionInfo
from waltz_server.store.api import ReplicaPhase
from waltz_server.store.record_reads import Wanted, read_records
from waltz_server.store.record_run import RecordRun
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import (
    Compare,
    Copy,
    Recovered,
    Refuse,
    SetLowWaterMark,
    Step,
    Truncate,
    Wait,
)
from waltz_server.store.replica_connection import ReplicaLink, ReplicaUnavailableError
from waltz_server.store.replica_session import ReplicaSession, submit_run
from waltz_server.store.session import StoreSession
from waltz_server.store.session_context import SessionContext
from waltz_server.store.waiting import Signal

_UNREACHABLE_PAUSE_SECONDS = 0.1
# Not cut short by changes: two failing replicas would wake each other forever.
_OTHER_REPLICA_PAUSE_SECONDS = 0.1
_REFUSED_POLL_SECONDS = 1.0
_REFUSED_PAUSE_SECONDS = 10.0
_COMPARED_HEADERS = 1000
_FEWER = 4
MAX_TAIL_RECORDS = 16
"""Headers that are asked for with the first question: of the last records, by which replicas differ when a
server was killed. If there are more, each comparison asks for the one that it needs."""


class Tail(NamedTuple):
    """A range of records."""

    first: int
    max_count: int


def tail_of(ends: Sequence[int]) -> Tail | None:
    """The records from the lowest end of the replicas to the highest; None for too many, or none."""
    if not ends or max(ends) < 0:
        return None
    first = max(min(ends), 0)
    count = max(ends) - first + 1
    return Tail(first, count) if count <= MAX_TAIL_RECORDS else None


async def _headers(
    link: ReplicaLink, session_id: int, partition_id: int, first: int, count: int
) -> list[RecordHeader]:
    """The headers of records first, first + 1, ...: `count` of them, or fewer; none when it has none."""
    if count == 1:  # as 0.13.2 asks
        header = await link.record_header(session_id, partition_id, first)
        return [] if header is None else [header]
    return await link.record_header_list(session_id, partition_id, first, count)


def _alike(own: Sequence[RecordHeader], other: Sequence[RecordHeader]) -> bool:
    """By transaction id and ReqId, as far as both go."""
    return all(one[:2] == two[:2] for one, two in zip(own, other, strict=False))


class InDoubtError(Exception):
    """A request that changes the replica ended without an answer."""


class CopyGoneError(WaltzProtocolError):
    """The node has less than it said it had: ask it again from the beginning."""


class _ReadAhead(NamedTuple):
    """Records of another replica, and what that was when they were asked for."""

    source: str
    link: ReplicaLink
    standing: tuple[int, int]
    run: RecordRun


class SessionOfReplicas(Protocol):
    """What one replica needs of the run of its session, and reports to it."""

    @property
    def changed(self) -> Signal: ...

    @property
    def session(self) -> StoreSession | None: ...

    def link_of(self, name: str) -> ReplicaLink | None:
        """The connection to another replica."""

    def headers_of(self, name: str, first: int, count: int) -> list[RecordHeader] | None: ...

    def look(self, name: str) -> Callable[[int | RequestFailedError], None]: ...

    def suspect(self) -> None:
        """The node refused us: the session may be over."""

    def replica_out(self, name: str, reason: str) -> None:
        """The replica is out of this session for good; only the next one can take it back."""

    def note(self, event: str, **values: str) -> None: ...


class ReplicaRecovery:
    """Brings one replica of one session to the point where it is listed, then keeps it going. Owner: the
    session run."""

    def __init__(
        self,
        run: SessionOfReplicas,
        context: SessionContext,
        recovery: Recovery,
        session_id: int,
        name: str,
        tail: Tail | None = None,
    ) -> None:
        """`tail`: records that will be compared, as far as it is known before the fence."""
        self.name = name
        self.phase = ReplicaPhase.CONNECTING
        """Changed by the transitions below only."""
        self.reason = ""
        """Why it is ABSENT, REFUSED or FAILED; empty in the other phases."""
        self.link: ReplicaLink | None = None
        """The connection of the last attempt that reached the node."""
        self.replica: ReplicaSession | None = None
        """Its part in the store session: from VOTING on, and kept when it FAILED after that."""
        self._run = run
        self._context = context
        self._recovery = recovery
        self._session_id = session_id
        self._partition_id = context.partition_id
        self._loop = asyncio.get_running_loop()
        self.since = self._loop.time()
        self.node_refused = False
        """The last attempt ended with a refusal by the node, not with a connection that is missing."""
        self._marked = False
        """The node may have this session written down."""
        self._watch: Callable[[str], None] | None = None
        self._ahead: _ReadAhead | None = None
        """What follows the records that were appended last."""
        self._tail = tail
        self._headers: dict[int, RecordHeader] = {}
        """Of records that it has held since its fence was raised; none once this session changes its log."""

    # ---- phases

    @property
    def tried(self) -> bool:
        """The first attempt has come to an answer or an error."""
        return self.phase is not ReplicaPhase.CONNECTING

    def become_recovering(self, info: SessionInfo, max_txid: int) -> None:
        """It answered a question of this session: from now on its fence refuses all older ones."""
        self.phase, self.reason = ReplicaPhase.RECOVERING, ""
        self._recovery.answered(self.name, info, max_txid)
        self._run.changed.notify()

    def become_absent(self, reason: str) -> None:
        """The attempt failed: to the recovery it may hold anything. One that is FAILED stays FAILED."""
        if self.phase is not ReplicaPhase.FAILED:
            self.phase, self.reason = ReplicaPhase.ABSENT, reason
        self._recovery.failed(self.name, reason)
        self._run.changed.notify()

    def become_refused(self, reason: str) -> None:
        """The recovery does not take it; it stays as it is for an operator to see."""
        self.phase, self.reason = ReplicaPhase.REFUSED, reason
        self._run.changed.notify()

    def become_voting(self, replica: ReplicaSession) -> None:
        """ZooKeeper lists it; `replica` takes part in the store session from now on."""
        self.phase, self.replica = ReplicaPhase.VOTING, replica
        self.since = self._loop.time()

    def become_failed(self, reason: str) -> None:
        """Out of this session for good; the first reason stays. Called by the run (`replica_out`)."""
        if self.phase is not ReplicaPhase.FAILED:
            self.phase, self.reason = ReplicaPhase.FAILED, reason

    def headers_at(self, first: int, count: int) -> list[RecordHeader] | None:
        """The headers of records that it holds, if all came with the answer to the first question."""
        if self.link is None or self.link.closed:
            return None
        found = [self._headers[txid] for txid in range(first, first + count) if txid in self._headers]
        return found if len(found) == count else None

    # ---- attempts

    async def run(self) -> None:
        """Until cancelled, or failed for this session."""
        try:
            while not await self._try():
                if self.phase is ReplicaPhase.REFUSED:
                    await self._until_it_may_be_another_copy()
                    self.become_absent(self.reason)
                elif self.node_refused:
                    self._run.suspect()
                    await asyncio.sleep(self._context.backoff_of(self.name).next_seconds())
                else:  # the directory keeps the back-off of nodes that cannot be reached
                    await asyncio.sleep(_UNREACHABLE_PAUSE_SECONDS)
        finally:
            self._unwatch()

    async def _try(self) -> bool:
        """One attempt; True when the replica is done with this session, whatever the end."""
        name = self.name
        asked = False
        try:
            link = await self._connect()
            asked = True
            await self._recover(link)
        except InDoubtError as error:
            reason = f"a change of it is in doubt: {error}"
            self.become_absent(reason)
            self._run.replica_out(name, reason)
            return True
        except (WaltzProtocolError, ReplicaUnavailableError) as error:
            self.node_refused = not isinstance(error, (ReplicaUnavailableError, ChannelClosedError))
            shut_out = isinstance(error, RequestFailedError) and not asked and await self._is_shut_out(error)
            if (newer := self._recovery.refusal_of(name)) is not None:
                self.become_refused(newer)
                return False
            self.become_absent(str(error))
            self._unwatch()
            if self._recovery.is_listed(name) or shut_out:
                self._run.suspect()
                self._run.replica_out(name, str(error))
                return True
            return False
        if self.replica is not None and self._run.session is not None:
            await self.replica.take_part(self._run.session)
        return self.phase is not ReplicaPhase.REFUSED

    async def _until_it_may_be_another_copy(self) -> None:
        """A refused copy is left as it is, and asked again for what a person may have done about it: when its
        node was stopped, and in an open session now and then, because a copy that is removed and assigned
        anew ends no connection."""
        asked_again_at = self._loop.time() + _REFUSED_PAUSE_SECONDS
        while self.link is not None and not self.link.closed:
            await asyncio.sleep(_REFUSED_POLL_SECONDS)
            if self._recovery.complete and self._loop.time() >= asked_again_at:
                return

    async def _is_shut_out(self, error: RequestFailedError) -> bool:
        """Only a later session can take the replica: its copy was removed, or its fence is above this session
        (an administrator put it down to the next one, say). One that is out of reach is no reason to begin
        another.

        Nor is one of a node that has completed a session that ZooKeeper has not given out (A8): an id above
        it would hide that. So the node is asked first, with the session that it takes: that raises nothing.
        Until it has answered it is tried again; so it is when ZooKeeper's leader does not confirm that the
        session is still ours, because a node of our successor says the same."""
        fence = named_fence(error.message)
        if fence is None or not self._session_id < fence <= self._session_id + FENCE_REACH:
            return self._marked
        if self.link is None:
            return False
        try:
            info, max_txid = await self.link.last_session_and_end(fence, self._partition_id)
        except WaltzProtocolError:
            return False
        newer = self._recovery.knows_more(self.name, info, max_txid)
        if newer is None:
            self._context.shut_out_by(fence)
            return True
        if await self._context.keeper.is_ours(self._session_id):
            self._recovery.proved(self.name, newer)
        return False

    async def _connect(self) -> ReplicaLink:
        link = await self._context.directory.get(self.name)
        self.link, self._ahead, self._headers = link, None, {}
        self._unwatch()
        self._watch = self._closed
        link.on_closed.append(self._watch)
        ids, tail = (self._session_id, self._partition_id), self._tail
        if tail is None or not link.stored_records:  # 0.13.2 is asked what it always was
            info, max_txid = await link.last_session_and_end(*ids)
        else:
            info, max_txid, headers = await link.last_session_end_and_headers(*ids, *tail)
            self._headers = {header.transaction_id: header for header in headers}
        self.become_recovering(info, max_txid)
        return link

    async def _recover(self, link: ReplicaLink) -> None:
        """Do steps until the replica is listed and entered, or refused."""
        run, recovery, name = self._run, self._recovery, self.name
        while True:
            ticket = run.changed.ticket()
            if self.replica is not None:
                return
            if link.closed:
                raise ChannelClosedError("the connection was closed")
            step = recovery.next_step(name)
            match step:
                case Wait() | Recovered():
                    await ticket.wait()
                case Refuse(reason):
                    self.become_refused(reason)
                    return
                case _:
                    await self._do(link, step)
                    run.changed.notify()

    async def _do(self, link: ReplicaLink, step: Step) -> None:
        recovery, name = self._recovery, self.name
        match step:
            case Compare(reference, first, last):
                await self._compare(link, reference, first, last)
            case Copy(source, first, last):
                await self._copy(link, source, first, last)
            case Truncate(keep):
                self._headers = {}
                try:
                    left = await link.truncate(self._session_id, self._partition_id, keep)
                except (RequestTimeoutError, ChannelClosedError) as error:
                    raise InDoubtError(f"truncate: {error}") from error
                recovery.truncated(name, left)
            case SetLowWaterMark(mark):
                self._marked = True
                said = recovery.max_txid_of(name)
                try:
                    held = await link.set_low_water_mark_and_ask(self._session_id, self._partition_id, mark)
                except (RequestTimeoutError, ChannelClosedError) as error:
                    raise InDoubtError(f"set low-water mark: {error}") from error
                if held != said:
                    raise CopyGoneError(f"it ends with record {held}, but said {said} before")
                recovery.low_water_mark_set(name)

    async def _compare(self, link: ReplicaLink, reference: str, first: int, last: int) -> None:
        equal, most = True, _COMPARED_HEADERS
        while equal and first <= last:
            count = min(last - first + 1, most)
            own, other = self.headers_at(first, count), self._run.headers_of(reference, first, count)
            if own is None or other is None or not _alike(own, other):  # what is gone since makes no fork
                asked = _headers(link, self._session_id, self._partition_id, first, count)
                try:
                    own, other = await asyncio.gather(asked, self._headers_of(reference, first, count))
                except RequestTimeoutError:
                    if count == 1:
                        raise
                    other = None
                if not other and count > 1:  # a shorter list may be had; what was compared is not read again
                    most = max(1, count // _FEWER)
                    continue
            if not own:  # no fork: its copy was taken away or set back since it answered
                raise CopyGoneError(f"record {first}, which it said it had, is gone")
            if not other:
                # The reference cannot say. Ask someone else, or the same one again if there is nobody else.
                self._recovery.reference_failed(self.name, reference)
                await asyncio.sleep(_OTHER_REPLICA_PAUSE_SECONDS)
                return
            equal = _alike(own, other)
            first, most = first + min(len(own), len(other)), min(2 * most, _COMPARED_HEADERS)
        self._recovery.compared(self.name, reference, equal=equal)

    async def _headers_of(self, name: str, first: int, count: int) -> list[RecordHeader] | None:
        """The headers of another replica's records; None where it cannot say."""
        link = self._run.link_of(name)
        if link is None:
            return None
        try:
            return await _headers(link, self._session_id, self._partition_id, first, count)
        except WaltzProtocolError:
            return None

    async def _copy(self, link: ReplicaLink, source: str, first: int, last: int) -> None:
        """Append the first part of these records; what follows is read meanwhile, for the next such step."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or not self._still_holds(ahead, source, first, last):
            ahead = await self._read(source, first, last)
            if ahead is None:
                await asyncio.sleep(_OTHER_REPLICA_PAUSE_SECONDS)
                return
        run, self._headers = ahead.run, {}
        copies = self._context.directory.copies_to(self.name)
        await copies.take(run.size_bytes)
        if link.closed or not self._still_holds(ahead, source, first, last):
            copies.give_back(run.size_bytes)
            return
        done: asyncio.Future[Exception | None] = self._loop.create_future()

        def answered(error: Exception | None) -> None:
            copies.give_back(run.size_bytes)
            if not done.done():
                done.set_result(error)

        submit_run(link, self._session_id, self._partition_id, -1, run, answered)
        if run.last < last:
            self._ahead = await self._read(source, run.last + 1, last)
        failure = await done
        if isinstance(failure, (RequestTimeoutError, ChannelClosedError)):
            raise InDoubtError(f"append: {failure}") from failure
        if failure is not None:
            raise failure
        self._recovery.copied(self.name, run.last)

    def _still_holds(self, ahead: _ReadAhead, source: str, first: int, last: int) -> bool:
        """What was read ahead is the beginning of what the step asks for: of the same source, which was not
        lost, asked anew or cut since."""
        return (
            ahead.source == source
            and ahead.run.first == first
            and ahead.run.last <= last
            and ahead.link is self._run.link_of(source)
            and not ahead.link.closed
            and ahead.standing == self._recovery.standing_of(source)
        )

    async def _read(self, source: str, first: int, last: int) -> _ReadAhead | None:
        """Records of another replica, committed or not; at most those of one batch. None when it failed,
        which the recovery knows then."""
        settings = self._context.settings
        last = min(last, first + settings.catch_up_batch_records - 1)
        wanted = Wanted(
            self._session_id,
            self._partition_id,
            first,
            last,
            settings.catch_up_batch_bytes,
            unresolved=True,
        )
        link, standing = self._run.link_of(source), self._recovery.standing_of(source)
        try:
            if link is None:
                raise ChannelClosedError("it is not connected")
            async with self._context.directory.copies_from(source).turn(wanted.max_bytes):
                run = await read_records(link, wanted, self._context.list_request_size)
        except WaltzProtocolError as error:
            self._run.note("cannot copy records", replica=self.name, source=source, reason=str(error))
            self._recovery.source_failed(self.name, source)
            return None
        return _ReadAhead(source, link, standing, run)

    def enter(self, resolved: int) -> None:
        """ZooKeeper lists the replica: it takes part from now on (called by the session run)."""
        run = self._run
        session = run.session
        if session is None or self.link is None or self.replica is not None:
            return
        settings = self._context.settings
        replica = ReplicaSession(
            self.name,
            self.link,
            max_frames=settings.max_in_flight_frames,
            max_bytes=settings.max_in_flight_bytes,
            slow_seconds=settings.request_timeout_seconds / 4,
            copies=self._context.directory.copies_to(self.name),
            reads=self._context.directory.copies_from(self.name),
        )
        self.become_voting(replica)
        check = self._context.directory.idle_check
        check.join(self.name, self.link, self._session_id, self._partition_id, lambda: run.look(self.name))
        session.enter(replica, resolved)
        self._headers = {}

    def _closed(self, reason: str) -> None:
        """The connection is gone."""
        session = self._run.session
        if self.replica is not None and session is not None:
            why = f"the connection was closed: {reason}"
            session.callbacks.run(session.fail_replica, self.name, why)
        self._run.changed.notify()

    def _unwatch(self) -> None:
        self._context.directory.idle_check.leave(self.name, self._session_id, self._partition_id)
        if self.link is not None and self._watch is not None and self._watch in self.link.on_closed:
            self.link.on_closed.remove(self._watch)
        self._watch = None
