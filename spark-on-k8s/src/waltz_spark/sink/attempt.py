"""What one attempt of a task does in one partition of the log, and why every row of the task is there once in
the end.

The log has no transactions over several records and no memory of who wrote what, but two things that suffice:
locks that are checked in the order of the log, and the client id in every transaction.

* An attempt starts with a *claim* (see `task_claims`): a transaction with a write lock on the task, as of
  the last transaction that it accounts for. It commits only when nobody claimed the task in between,
  otherwise the attempt reads what it missed and claims again.
* Its rows take a *read* lock on the task, as of the claim. Read locks do not make rows wait for each other,
  so they are pipelined; but once another attempt has claimed, every row of this one that is not in the log
  yet fails. So at the moment its claim commits, an attempt can read from the log, completely and for good,
  which rows the attempts before it have written, and leaves those out.
* A row with user locks is checked as of its own view (`as_of`), which is older than any claim; the lock on
  the task would always fail it. It takes a *write* lock of its own instead, the same in all attempts. An
  attempt sends it as of a view below which it has found no such row; so when one of several copies commits,
  all the others fail by that lock, and who gets the failure finds the row in the log. A view that is newer
  than the claim needs a newer claim; one that is no older than that was never a view of this log.
* A copy in the log shows its content, not its locks. So a row with user locks has no row of equal content
  next to it: `admit` refuses the task otherwise. Equal rows without user locks represent each other.
* Whenever a row does not commit, the attempt claims again, which settles all of its rows without a lock of
  their own, and reads the log up to the claim.
* There is one case without a new claim: all rows that did not commit were refused for a lock, so nothing is
  on its way, and none of the refusals ends the task or leaves a row out. The attempt reads the log up to the
  transactions that the refusals name. When nobody else has claimed, its own claim is still the newest, and
  what was read is a view as good as a new claim: a copy or a claim that came later fails the rows again.

`Attempt` is the state of this, immutable; `next_action` decides what to do with the log and the
`after_...` functions take in what came of it. Pure: no log, no clock, no random number. The shell that
performs the actions is `task_writer`; a test walks through all interleavings of several attempts, faults
and delays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from waltz_protocol.locks import LockId
from waltz_spark.sink.errors import (
    BadRowError,
    NotRepeatableError,
    RowConflictError,
    StaleBatchError,
    SupersededError,
)
from waltz_spark.sink.read_back import ClaimSeen, RowSeen, Sighting
from waltz_spark.sink.task_claims import Claim, fingerprint


class OnConflict(Enum):
    """What becomes of a row whose user locks were touched after its view."""

    FAIL = "fail"
    SKIP = "skip"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class OutgoingRow:
    """One row for the log. `as_of` is the view of its user locks; None without write and read locks."""

    data: bytes
    header: int = 0
    write_locks: tuple[LockId, ...] = ()
    read_locks: tuple[LockId, ...] = ()
    append_locks: tuple[LockId, ...] = ()
    as_of: int | None = None

    @property
    def fingerprint(self) -> bytes:
        """See `task_claims.fingerprint`."""
        return fingerprint(self.header, self.data)


# -- what to do with the log, and what comes of it -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendClaim:
    """Append the claim with the task's write lock as of this transaction."""

    as_of: int


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read the transactions after `after` up to and with `until`, and report which are claims of the place
    and rows of the task."""

    after: int
    until: int
    owners: frozenset[int]


@dataclass(frozen=True, slots=True)
class SendRows:
    """Append these rows in their order; one without a view of its own takes the task's read lock as of
    `as_of`, one with a view takes the lock of the row, as of its view but not later than `as_of`."""

    rows: tuple[OutgoingRow, ...]
    as_of: int


Action = AppendClaim | ReadBack | SendRows


@dataclass(frozen=True, slots=True)
class Committed:
    """In the log, with this id."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Not in the log: a lock was touched, by this transaction at the latest."""

    mark: int


@dataclass(frozen=True, slots=True)
class Undecided:
    """Not known to be in the log: failed, or sent and not answered in time. `log_ends_at`: where the log of
    the server that refused it ends, before the view."""

    log_ends_at: int | None = None


Outcome = Committed | Conflict | Undecided


# -- the state -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attempt:
    """State of one attempt in one partition.

    Invariants
    * `known`: every claim of the place and every row of the task above the start of the batch, up to this
      transaction, was seen.
    * `view`, when not None, is the own claim, or a later transaction up to which the log was read since:
      everything up to it is known once nothing is `unread`, and no claim of another attempt at the task lies
      between the own one and it. No row without a lock of its own that was sent before is on its way.
    * a row is in `pending` until it is in the log; `spare` counts rows found in the log that no row of
      this attempt was matched with yet.
    * `accounted`: own rows up to this id, and those in `settled`, were reported as committed.
    * `offered`: content of every row that was admitted, and whether one with a view has it; then no other row
      does. Empty where no row of the task can have a view (`has_views` is False).
    * `admitted`: rows that were admitted and not offered yet.
    """

    me: Claim
    known: int
    on_conflict: OnConflict = OnConflict.FAIL
    has_views: bool = True
    view: int | None = None
    claimed: bool = False
    unread: int | None = None
    owners: frozenset[int] = frozenset()
    accounted: int = -1
    settled: frozenset[int] = frozenset()
    pending: tuple[OutgoingRow, ...] = ()
    conflicted: frozenset[int] = frozenset()
    spare: Mapping[bytes, int] = field(default_factory=dict)
    offered: Mapping[bytes, bool] = field(default_factory=dict)
    admitted: int = 0
    written: int = 0
    found: int = 0
    skipped: int = 0

    @property
    def idle(self) -> bool:
        """Every row offered so far is in the log (or skipped)."""
        return self.view is not None and not self.pending and self.unread is None


def admit(state: Attempt, partition: int, rows: Sequence[OutgoingRow]) -> Attempt:
    """Before `offer`, in the same order: rows that the log can distinguish. BadRowError when one with user
    locks and another row of the task have equal content: a copy in the log could be of either, and an attempt
    that takes it for the wrong one writes the other row again, leaves it out, or fails each time."""
    admitted = state.admitted + len(rows)
    if not state.has_views:
        if any(row.as_of is not None for row in rows):
            raise RuntimeError("a row of a task without views has a view")
        return replace(state, admitted=admitted)
    offered = dict(state.offered)
    for row in rows:
        print_, has_view = row.fingerprint, row.as_of is not None
        if print_ in offered and (has_view or offered[print_]):
            raise BadRowError(
                f"partition {partition}: two rows of task {state.me.key.task} of batch {state.me.key.batch} are of equal content (header "
                f"{row.header}, {len(row.data)} bytes of data), and at least one of them has write or read locks: the log cannot "
                "distinguish them when the task is repeated; put an id of the row into the payload"
            )
        offered[print_] = has_view
    return replace(state, offered=offered, admitted=admitted)


def offer(state: Attempt, rows: Sequence[OutgoingRow]) -> Attempt:
    """More rows of the task, which were admitted; those that are in the log already are left out. A view that
    is newer than the claim takes a new claim, which shows whether the log has it."""
    if len(rows) > state.admitted:
        raise RuntimeError(f"{len(rows)} rows were offered, and {state.admitted} admitted")
    admitted = state.admitted - len(rows)
    state = _match(replace(state, pending=(*state.pending, *rows), admitted=admitted))
    view = state.view
    if view is not None and any(row.as_of is not None and row.as_of > view for row in state.pending):
        return replace(state, view=None)
    return state


def next_action(state: Attempt) -> Action | None:
    """What to do now; None when idle."""
    if state.unread is not None:
        return ReadBack(state.known, state.unread, state.owners)
    if state.view is None:
        return AppendClaim(state.known)
    if state.pending:
        return SendRows(state.pending, state.view)
    return None


def after_claim(state: Attempt, outcome: Outcome) -> Attempt:
    """The claim was decided, or not: then it is claimed again, and if the first one got in it is found on the
    way. BadRowError for a row whose view is no older than a claim that was made after it came."""
    if isinstance(outcome, Conflict):
        return replace(state, unread=max(outcome.mark, state.known))
    if isinstance(outcome, Undecided):
        return state
    claim = outcome.transaction_id
    for row in state.pending:
        if row.as_of is not None and row.as_of >= claim:
            raise BadRowError(
                f"a row of task {state.me.key.task} of batch {state.me.key.batch} has as_of {row.as_of}, and its partition of the log "
                f"ends before transaction {claim}: it is no transaction of that partition that a decision can have taken into account"
            )
    if state.owners:
        return replace(state, view=claim, claimed=True, unread=claim)
    # Nobody touched the task's lock since what is known: there is no earlier attempt, and nothing to read.
    return replace(state, view=claim, claimed=True, known=claim, owners=frozenset((state.me.client_id,)))


def after_reading(state: Attempt, sightings: Sequence[Sighting], owners: frozenset[int]) -> Attempt:
    """The stretch was read. `owners`: whose transactions belong to the task from its end on.

    SupersededError, StaleBatchError: another attempt has the task, and this one ends. RowConflictError.
    """
    until = state.unread
    if until is None:
        raise RuntimeError("nothing was to be read")
    spare = Counter(state.spare)
    for seen in sightings:
        if isinstance(seen, ClaimSeen):
            _check_rival(state, seen)
        elif not _is_accounted(state, seen):
            spare[seen.fingerprint] += 1
    view = None if state.view is None else until
    state = replace(state, known=until, view=view, unread=None, owners=owners, spare=spare)
    state = _match(state)
    return _settle_conflicts(state) if state.view is not None else state


def after_sending(state: Attempt, outcomes: Sequence[Outcome]) -> Attempt:
    """The outcomes of the rows of `SendRows`, in their order."""
    rows = state.pending
    if len(rows) != len(outcomes):
        raise RuntimeError(f"{len(outcomes)} outcomes of {len(rows)} rows")
    committed = [outcome.transaction_id for outcome in outcomes if isinstance(outcome, Committed)]
    written = state.written + len(committed)
    if len(committed) == len(rows):
        accounted = max(committed, default=state.accounted)
        return replace(state, pending=(), written=written, accounted=accounted)
    left = [(row, outcome) for row, outcome in zip(rows, outcomes) if not isinstance(outcome, Committed)]
    conflicted = frozenset(
        index
        for index, (row, outcome) in enumerate(left)
        if row.as_of is not None and row.as_of <= state.known and isinstance(outcome, Conflict)
    )
    state = replace(
        state,
        pending=tuple(row for row, _ in left),
        conflicted=conflicted,
        settled=frozenset(committed),
        written=written,
    )
    marks = [outcome.mark for _, outcome in left if isinstance(outcome, Conflict)]
    if len(marks) < len(left) or (conflicted and state.on_conflict is not OnConflict.RETRY):
        return replace(state, view=None)
    until = max(marks + committed)  # `settled` counts until what it names was read
    return replace(state, unread=until) if until > state.known else _settle_conflicts(state)


def finish(state: Attempt) -> None:
    """The task has no more rows. NotRepeatableError when an earlier attempt wrote rows that this one does not
    have."""
    spare = sum(state.spare.values())
    if spare:
        raise NotRepeatableError(
            f"an earlier attempt at task {state.me.key.task} of batch {state.me.key.batch} wrote {spare} rows that do not occur in "
            "this attempt: the query does not give the same rows when it is repeated, so its rows cannot be written exactly once"
        )


# -- parts ---------------------------------------------------------------------------------------------------


def _check_rival(state: Attempt, seen: ClaimSeen) -> None:
    key, mine = seen.claim.key, state.me.key
    if key.batch > mine.batch:
        raise StaleBatchError(
            f"batch {mine.batch} of query {mine.query} has ended: batch {key.batch} is being written (transaction "
            f"{seen.transaction_id} shows it)"
        )
    if key.batch == mine.batch and seen.claim.attempt != state.me.attempt and state.claimed:
        raise SupersededError(
            f"another attempt at task {mine.task} of batch {mine.batch} has taken over (transaction {seen.transaction_id} shows it)"
        )


def _is_accounted(state: Attempt, seen: RowSeen) -> bool:
    if seen.client_id != state.me.client_id:
        return False
    return seen.transaction_id <= state.accounted or seen.transaction_id in state.settled


def _match(state: Attempt) -> Attempt:
    """Rows that were found in the log are no longer pending."""
    if not state.spare or not state.pending:
        return state
    spare = Counter(state.spare)
    left: list[OutgoingRow] = []
    conflicted: list[int] = []
    for index, row in enumerate(state.pending):
        print_ = row.fingerprint
        if spare[print_]:
            spare[print_] -= 1
            continue
        if index in state.conflicted:
            conflicted.append(len(left))
        left.append(row)
    return replace(
        state,
        pending=tuple(left),
        conflicted=frozenset(conflicted),
        spare=+spare,
        found=state.found + len(state.pending) - len(left),
    )


def _settle_conflicts(state: Attempt) -> Attempt:
    """The log was read up to the own claim, and these rows are not in it: their user locks were touched after
    their view."""
    if not state.conflicted:
        return state
    rows = [state.pending[index] for index in sorted(state.conflicted)]
    if state.on_conflict is OnConflict.FAIL:
        raise RowConflictError(
            f"{len(rows)} rows of task {state.me.key.task} of batch {state.me.key.batch} conflict: a lock of theirs was touched after their as_of, "
            f"first the row as of {rows[0].as_of} with write locks {lock_names(rows[0].write_locks)} and read locks {lock_names(rows[0].read_locks)}"
        )
    if state.on_conflict is OnConflict.SKIP:
        pending = tuple(row for index, row in enumerate(state.pending) if index not in state.conflicted)
        return replace(state, pending=pending, conflicted=frozenset(), skipped=state.skipped + len(rows))
    pending = tuple(
        replace(row, as_of=state.known) if index in state.conflicted else row
        for index, row in enumerate(state.pending)
    )
    return replace(state, pending=pending, conflicted=frozenset())


def lock_names(locks: tuple[LockId, ...]) -> str:
    """For a message."""
    return ", ".join(f"{lock.name}:{lock.id}" for lock in locks) or "none"
