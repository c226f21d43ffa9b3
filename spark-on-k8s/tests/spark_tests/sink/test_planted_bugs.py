"""What the walk through all interleavings is worth: a part of the method is left out, and it finds the row
too many, or too few."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_tests.sink import model
from spark_tests.sink.model import Job, World
from spark_tests.sink.test_all_interleavings import BEFORE, LOCKED, PLAIN, TWIN, explore
from waltz_client import Append
from waltz_spark.sink import attempt as protocol
from waltz_spark.sink.attempt import Attempt, Committed, OnConflict, Outcome, OutgoingRow
from waltz_spark.sink.errors import NotRepeatableError
from waltz_spark.sink.requests import row_request
from waltz_spark.sink.task_claims import TaskKey

Patch = Callable[[pytest.MonkeyPatch], None]
KILLED = World(log=BEFORE, crashes=1)
SLOW = World(log=BEFORE, timeouts=1)


def rows_without_the_task_lock(patch: pytest.MonkeyPatch) -> None:
    def request(partition: int, key: TaskKey, row: OutgoingRow, claim: int) -> Append:
        made = row_request(partition, key, row, claim)
        return made._replace(read_locks=()) if row.as_of is None else made

    patch.setattr(model, "row_request", request)


def rows_without_their_own_lock(patch: pytest.MonkeyPatch) -> None:
    def request(partition: int, key: TaskKey, row: OutgoingRow, claim: int) -> Append:
        return row_request(partition, key, row, claim)._replace(write_locks=row.write_locks)

    patch.setattr(model, "row_request", request)


def no_reading_up_to_the_claim(patch: pytest.MonkeyPatch) -> None:
    honest = protocol.after_claim

    def after_claim(state: Attempt, outcome: Outcome) -> Attempt:
        after = honest(state, outcome)
        if isinstance(outcome, Committed):
            owners = after.owners | {state.me.client_id}
            return replace(after, unread=None, known=outcome.transaction_id, owners=owners)
        return after

    patch.setattr(protocol, "after_claim", after_claim)


def no_new_claim_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    honest = protocol.after_sending

    def after_sending(state: Attempt, outcomes: tuple[Outcome, ...]) -> Attempt:
        return replace(honest(state, outcomes), view=state.view, conflicted=frozenset())

    patch.setattr(protocol, "after_sending", after_sending)


def refused_rows_are_sent_again_unread(patch: pytest.MonkeyPatch) -> None:
    honest = protocol.after_sending

    def after_sending(state: Attempt, outcomes: tuple[Outcome, ...]) -> Attempt:
        after = honest(state, outcomes)
        if after.unread is None:
            return after
        return replace(after, view=after.unread, known=after.unread, unread=None)

    patch.setattr(protocol, "after_sending", after_sending)


def own_rows_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(protocol, "_is_accounted", lambda state, seen: seen.client_id == state.me.client_id)


BUGS: dict[str, tuple[Patch, World, Job]] = {
    "rows do not read the task's lock": (rows_without_the_task_lock, SLOW, Job(((PLAIN, TWIN),), start=0)),
    "rows with a view have no lock of their own": (
        rows_without_their_own_lock,
        replace(SLOW, touches=0),
        Job(((replace(LOCKED, write_locks=(), read_locks=LOCKED.write_locks),),), start=0),
    ),
    "the log is not read up to the claim": (no_reading_up_to_the_claim, KILLED, Job(((PLAIN,),), start=0)),
    "no new claim after a failure": (no_new_claim_after_a_failure, SLOW, Job(((PLAIN,),), start=0)),
    "refused rows are sent again, and the log is not read": (
        refused_rows_are_sent_again_unread,
        World(log=BEFORE),
        Job(((PLAIN,),), start=0),
    ),
    "own rows without an answer are not looked for": (
        own_rows_are_not_looked_for,
        SLOW,
        Job(((PLAIN,),), start=0, on_conflict=OnConflict.RETRY),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, world, job = BUGS[name]
    plant(monkeypatch)
    with pytest.raises((AssertionError, NotRepeatableError)):
        explore(world, job)
