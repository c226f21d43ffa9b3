"""The history of a run: every call of every workload and what came of it, as an observer outside of all
processes saw it.

It is plain memory, survives every kill, and costs the observed nothing. What can be judged at once (a fork, a
gap in a feed) is judged at once; the rest by the checkers over the whole history and the final truth.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.sim.checkers import payload
from tests.sim.checkers.book import CommitBook, ReqIdFields
from tests.sim.checkers.violation import Violation
from waltz_protocol.locks import LockId
from waltz_protocol.types import Record

__all__ = [
    "AppendOp",
    "AppliedState",
    "CommitBook",
    "FeedLog",
    "History",
    "MarkRead",
    "Outcome",
    "Truth",
    "Violation",
]


class Outcome(enum.Enum):
    """What its caller learned about an append. PENDING: nothing (still under way, or the caller was
    killed)."""

    PENDING = "pending"
    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class AppendOp:
    """One append: what was asked, when, and what the caller was answered. `order` numbers count all events of
    the history."""

    uid: int
    process: str
    partition: int
    workload: str
    body: payload.Body
    data: bytes
    header: int
    write_locks: tuple[LockId, ...]
    read_locks: tuple[LockId, ...]
    append_locks: tuple[LockId, ...]
    as_of: int | None
    """The view its locks are checked against; None when the caller left it to the client."""
    invoked_at: float
    invoked: int
    floor: int
    """Largest id that anybody knew to be committed when it was invoked: its own must be larger."""
    outcome: Outcome = Outcome.PENDING
    completed: int = -1
    completed_at: float = -1.0
    transaction_id: int | None = None
    """The id the caller got; None also for a committed one whose caller is not given the id."""
    error: str = ""
    """Class of the error."""
    conflict: int | None = None
    """The mark of a lock conflict."""
    mark_at_end: int = -1
    """Largest id that anybody knew to be committed when its outcome came."""
    deadline: float | None = None
    """Seconds the caller gave it."""
    view_floor: int = -1
    """When the view is left to the client: it is not older than this, because outcomes reported before imply
    it."""
    pipeline: str = ""
    """Appends of one pipeline commit in the order of their uids."""
    client: str = ""
    """The client object it was handed to."""
    sent_at_once: bool = False
    """The client could send it when it was invoked: a view left to the client is what it had received by
    then."""


@dataclass(slots=True)
class MarkRead:
    """One answer to "what is the high-water mark?"."""

    process: str
    client: str
    """The client object: a restarted process has another one."""
    partition: int
    own_floor: int
    """Largest id this very client had been shown as committed when it asked."""
    floor: int
    """Largest id anybody had been shown."""
    value: int
    invoked: int
    completed: int
    invoked_at: float = 0.0
    completed_at: float = 0.0


class FeedLog:
    """One reader of one partition, from its start to its end or kill; judged while it reads."""

    __slots__ = (
        "after",
        "book",
        "busy",
        "count",
        "floor",
        "gone",
        "last",
        "listening",
        "mark_before",
        "name",
        "partition",
        "report",
        "until",
    )

    def __init__(
        self,
        name: str,
        partition: int,
        after: int | None,
        own_floor: int,
        book: CommitBook,
        report: Callable[[Violation], None],
    ) -> None:
        self.name = name
        self.partition = partition
        self.after = after
        self.last = after
        self.count = 0
        self.floor = own_floor
        self.book = book
        self.report = report
        self.mark_before = book.mark(partition)
        """What was committed when it was opened."""
        self.until: int | None = None
        self.busy = False
        """The reader is still at work on what it was handed (of any of its partitions)."""
        self.listening: Callable[[], bool] = _always
        """Whether its process runs just now."""
        self.gone: Callable[[], bool] = _never
        """Whether nobody reads it any longer."""

    def ended_for_good(self) -> bool:
        """Its reader has left, or was killed, or has all it asked for."""
        return self.gone() or (self.until is not None and self.last is not None and self.last >= self.until)

    def waits(self) -> bool:
        """Something is committed that its reader is ready for and has not been handed."""
        if self.busy or not self.listening():
            return False
        last = self.mark_before if self.last is None else self.last
        return self.book.mark(self.partition) > last and (self.until is None or last < self.until)

    def delivered(
        self, transaction_id: int, req_id: ReqIdFields, header: int, data: bytes | None, with_data: bool
    ) -> None:
        """The reader was handed this transaction. Violations: `feed_order`, `feed_start`, `feed_data`,
        the book's."""
        if with_data != (data is not None):
            self.report(
                Violation(
                    "feed_data",
                    f"{self.name}: transaction {transaction_id}: data {data!r}, with_data={with_data}",
                )
            )
        last = self.last
        if last is None:
            if transaction_id <= self.floor:
                self.report(
                    Violation(
                        "feed_start",
                        f"{self.name}: a feed of what commits from now on began with {transaction_id} in partition "
                        f"{self.partition}, though this client had been shown {self.floor} before",
                    )
                )
        elif transaction_id != last + 1:
            self.report(
                Violation(
                    "feed_order",
                    f"{self.name}: partition {self.partition}: transaction {transaction_id} came after {last}",
                )
            )
        self.last = transaction_id
        self.count += 1
        self.book.observe(self.partition, transaction_id, req_id, header, data, self.name)

    def ended(self, until: int) -> None:
        """The feed ended on its own, as asked, after `until`. Violation: `feed_end`."""
        if self.last != until and not (self.after is not None and self.after >= until):
            if self.last is None and self.book.mark(self.partition) >= until:
                return  # from now on, until something that was there already
            self.report(Violation("feed_end", f"{self.name}: ended after {self.last}, not after {until}"))


def _always() -> bool:
    return True


def _never() -> bool:
    return False


@dataclass
class AppliedState:
    """What an application's database holds that applies one partition, with its mark, in one transaction each
    time."""

    name: str
    partition: int
    mark: int = -1
    rows: list[tuple[int, int | None]] = field(default_factory=list)
    """(transaction id, uid or None if it did not look at the payload), in the order of application."""
    total: int = 0
    """Sum of the uids."""
    commits: int = 0

    def apply(self, rows: list[tuple[int, int | None]], mark: int) -> None:
        """One database transaction; trusts its caller, so that the checker can see what the caller did
        wrong."""
        self.rows += rows
        self.total += sum(uid for _, uid in rows if uid is not None)
        self.mark = mark
        self.commits += 1


@dataclass
class Truth:
    """What is left when everything is quiet: read straight from the disks, and by a fresh client."""

    log: dict[int, list[Record]]
    """Partition -> its whole committed log, as a fresh client read it."""
    replicas: dict[int, dict[str, list[Record]]] = field(default_factory=dict)
    """Partition -> storage node -> its records, read straight from its disk."""
    high_water_marks: dict[int, int] = field(default_factory=dict)
    """Partition -> committed mark as its owner says."""
    healed_at: float | None = None
    """Virtual second when the last fault ended."""
    ended_at: float | None = None
    """Virtual second when the workloads had stopped."""


class History:
    """Everything the workloads did and saw, in order. One for a whole run."""

    def __init__(
        self,
        now: Callable[[], float],
        on_violation: Callable[[Violation], None] | None = None,
    ) -> None:
        """`now`: virtual seconds. `on_violation` is called for what is judged at once (it may raise)."""
        self.now = now
        self.appends: list[AppendOp] = []
        self.mark_reads: list[MarkRead] = []
        self.feeds: list[FeedLog] = []
        self.databases: list[AppliedState] = []
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.book = CommitBook(self.report, now)
        self.doubts: list[tuple[float, float]] = []
        """Times (first and last second) at which a server's clock or its ZooKeeper may be wrong about its
        session."""
        self.session_timeout_seconds = 0.0
        """Of the servers: for so long one may serve that has been replaced (D8). 0: nothing is known of
        it."""
        self._on_violation = on_violation
        self._order = 0
        self._opened: Counter[str] = Counter()

    def client_opened(self, process: str, client_id: int) -> str:
        """A name for a client object that no other has, though ids are given out again when their counter
        goes back."""
        name = f"{process}/client-{client_id}"
        self._opened[name] += 1
        return name if self._opened[name] == 1 else f"{name}/{self._opened[name]}"

    def report(self, violation: Violation) -> None:
        """A violation seen while running."""
        self.violations.append(violation)
        if self._on_violation is not None:
            self._on_violation(violation)

    def tick(self) -> int:
        """The number of the next event."""
        self._order += 1
        return self._order

    # -- appends ---------------------------------------------------------------------------------------------

    def invoke(
        self,
        process: str,
        workload: str,
        partition: int,
        body: payload.Body,
        *,
        header: int = 0,
        write_locks: Iterable[LockId] = (),
        read_locks: Iterable[LockId] = (),
        append_locks: Iterable[LockId] = (),
        as_of: int | None = None,
        pipeline: str = "",
    ) -> AppendOp:
        """An append is about to be made; its payload is `data` of what this returns."""
        uid = len(self.appends)
        op = AppendOp(
            uid,
            process,
            partition,
            workload,
            body,
            payload.encode(uid, workload, body),
            header,
            tuple(write_locks),
            tuple(read_locks),
            tuple(append_locks),
            as_of,
            self.now(),
            self.tick(),
            self.book.mark(partition),
            pipeline=pipeline,
        )
        self.appends.append(op)
        return op

    def committed(self, op: AppendOp, transaction_id: int | None) -> None:
        """The caller was informed that it is in the log (at this id, if it was given the id)."""
        op.transaction_id = transaction_id
        if transaction_id is not None:
            self.book.raise_mark(op.partition, transaction_id)
        self._settle(op, Outcome.COMMITTED, "")

    def failed(self, op: AppendOp, error: str, conflict: int | None = None) -> None:
        """The caller was informed that it certainly is not in the log."""
        op.conflict = conflict
        self._settle(op, Outcome.FAILED, error)

    def unknown(self, op: AppendOp, error: str) -> None:
        """The caller was informed that nobody knows."""
        self._settle(op, Outcome.UNKNOWN, error)

    def _settle(self, op: AppendOp, outcome: Outcome, error: str) -> None:
        if op.outcome is not Outcome.PENDING:
            self.report(
                Violation(
                    "outcome_once",
                    f"append {op.uid} of {op.process} ended as {op.outcome.value} and again as {outcome.value}",
                )
            )
            return
        op.outcome = outcome
        op.error = error
        op.completed = self.tick()
        op.completed_at = self.now()
        op.mark_at_end = self.book.mark(op.partition)

    # -- reads -----------------------------------------------------------------------------------------------

    def feed(self, name: str, partition: int, after: int | None, own_floor: int = -1) -> FeedLog:
        """A reader opens a feed after this id (None: what commits from now on).

        `own_floor`: the largest id this very client has been shown. It may not yet know what others know.
        """
        log = FeedLog(name, partition, after, own_floor, self.book, self.report)
        self.feeds.append(log)
        return log

    def database(self, name: str, partition: int) -> AppliedState:
        """An application's database; made once, survives every kill."""
        state = AppliedState(name, partition)
        self.databases.append(state)
        return state

    def mark_read(
        self,
        process: str,
        client: str,
        partition: int,
        invoked: int,
        floor: int,
        own_floor: int,
        value: int,
        invoked_at: float = 0.0,
    ) -> None:
        """An answer to a high-water mark request; `invoked` and `floor`: `tick()` and `book.mark`
        before it."""
        self.book.raise_mark(partition, value)
        self.mark_reads.append(
            MarkRead(
                process,
                client,
                partition,
                own_floor,
                floor,
                value,
                invoked,
                self.tick(),
                invoked_at,
                self.now(),
            )
        )

    def data_read(self, partition: int, transaction_id: int, data: bytes, by: str) -> None:
        """An answer to a data request."""
        self.book.observe_data(partition, transaction_id, data, by)
