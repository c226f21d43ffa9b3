"""What the deadline of a migration does not count: how long a copy was compared."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan.cluster import NOW, answer, name, replica
from operator_tests.plan.test_deadline import LONG_AGO, MOVE, SILENT, decide, seen, task
from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.model.snapshot import JobView
from waltz_operator.model.task import Record


def test_a_copy_that_was_compared_for_longer_than_the_deadline_and_ended_is_not_given_up() -> None:
    """The Job is seen as succeeded before its pod's report is: the pass waits for that, and all that was
    copied stays."""
    job = JobView("j", "m", 0, name(0), name(3), "succeeded", LONG_AGO, ended_at=NOW - 1)
    offline = answer(replica(available=False, session_id=-1))
    one = replace(
        task(), phase=MigrationPhase.RUNNING, records=(Record(MOVE, MoveState.COPYING, copied_txid=5),)
    )
    decision = decide(seen({3: offline}, jobs={"copy-m-0": job}), one)
    assert decision.task.failure == ""


def test_a_copy_that_is_verified_late_is_not_thrown_away_by_the_next_wait() -> None:
    """It is compared for longer than the deadline, is verified, goes online; then one other node does not
    answer for a moment, so the assignment waits."""
    job = JobView("j", "m", 0, name(0), name(3), "succeeded", LONG_AGO, 5, "c", ended_at=NOW - 1)
    one = replace(
        task(), phase=MigrationPhase.RUNNING, records=(Record(MOVE, MoveState.COPYING, copied_txid=5),)
    )
    offline = answer(replica(available=False, session_id=-1))
    verified = decide(seen({3: offline}, jobs={"copy-m-0": job}), one)
    assert verified.task.records[0].state is MoveState.VERIFIED
    online = answer(replica(session_id=-1))
    wait = decide(seen({1: SILENT, 2: SILENT, 3: online}, jobs={"copy-m-0": job}), verified.task)
    assert not wait.actions
    assert wait.task.failure == ""
