"""Checkers of what is easily overlooked: views left to the client, failures that lie in wait, old marks,
silent feeds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.checkers.history import AppendOp, FeedLog
from tests.sim.checkers.silence import SilenceWatch
from tests.sim.checkers.story import Story
from waltz_protocol.locks import LockId

A, B = LockId("lock", 1), LockId("lock", 2)


def replaced(record: Any, **fields: Any) -> Any:
    return record._replace(**fields)


# -- views left to the client --------------------------------------------------------------------------------


def sent(story: Story, client: str = "one", **more: Any) -> AppendOp:
    """An append under lock A whose view is left to its client, which sends it at once."""
    op = story.invoke(**{"write_locks": [A], **more})
    op.client, op.sent_at_once = client, True
    return op


def test_lost_update_over_an_append_that_was_made_later() -> None:
    story = Story()
    early, late = sent(story), sent(story, client="other")
    story.told(late)
    story.told(early)
    assert story.broken() == {"lost_update"}


def test_lost_update_over_an_append_of_the_same_client_that_was_told_later() -> None:
    story = Story()
    first, second = sent(story), sent(story)
    story.told(first)
    story.told(second)
    assert story.broken() == {"lost_update"}


def test_lost_update_counts_read_locks_that_check_and_append_locks_that_touch() -> None:
    story = Story()
    early = sent(story, write_locks=[], read_locks=[B, A])
    late = sent(story, client="other", write_locks=[], append_locks=[A])
    story.told(late)
    story.told(early)
    assert story.broken() == {"lost_update"}


@pytest.mark.parametrize(
    "why", ["received", "another client", "waited for room", "another lock", "view given"]
)
def test_no_lost_update(why: str) -> None:
    story = Story()
    first = sent(story, client="other" if why == "another client" else "one")
    if why == "received":
        story.told(first)
    second = sent(story, write_locks=[B if why == "another lock" else A])
    second.as_of = 0 if why == "view given" else None
    second.sent_at_once = why != "waited for room"
    if why != "received":
        story.told(first)
    story.told(second)
    assert story.broken() == set()


# -- failed, and on a replica --------------------------------------------------------------------------------


@pytest.mark.parametrize("above", [True, False])
def test_failed_on_replica(above: bool) -> None:
    """Above the mark of two replicas of three: the next recovery would commit it."""
    story = Story()
    story.append()
    op = story.invoke()
    record = story.commit(op)
    story.history.failed(op, "AppendFailedError")
    story.log[0].pop()
    if not above:
        story.append()
    truth = story.truth()
    if above:
        for node in ("storage-1", "storage-3"):
            truth.replicas[0][node].append(record)
        assert story.broken(truth) == {"failed_on_replica"}
    else:
        truth.replicas[0]["storage-1"][1] = record
        assert story.broken(truth) == {"failed_on_replica", "replicas"}


def test_an_append_of_unknown_outcome_may_stand_above_the_mark() -> None:
    story = Story()
    story.append()
    op = story.invoke()
    record = story.commit(op)
    story.history.unknown(op, "cancelled")
    story.log[0].pop()
    truth = story.truth()
    truth.replicas[0]["storage-2"].append(record)
    assert story.broken(truth) == set()


# -- marks that are too old ----------------------------------------------------------------------------------


def read_mark(story: Story, value: int, asked_after: float) -> None:
    """Another client, which has seen nothing, is given this mark, `asked_after` seconds from now."""
    story.seconds += asked_after
    history = story.history
    history.mark_read("r", "r/2", 0, history.tick(), history.book.mark(0), -1, value, story.seconds)


def of_a_session_timeout(seconds: float) -> Story:
    story = Story()
    story.history.session_timeout_seconds = seconds
    story.append()
    story.append()
    return story


def test_mark_stale_for_another_client() -> None:
    story = of_a_session_timeout(4.0)
    read_mark(story, 0, 100.0)
    assert story.broken() == {"mark_stale"}


def test_mark_stale_bounds_what_a_server_that_was_replaced_may_say() -> None:
    story = of_a_session_timeout(4.0)
    read_mark(story, 0, 3.0)
    read_mark(story, 1, 100.0)
    assert story.broken() == set()


@pytest.mark.parametrize(("doubt", "broken"), [((50.0, 200.0), False), ((50.0, 90.0), True)])
def test_mark_stale_is_excused_while_clocks_stood_still(doubt: tuple[float, float], broken: bool) -> None:
    story = of_a_session_timeout(4.0)
    story.history.doubts.append(doubt)
    read_mark(story, 0, 100.0)
    assert story.broken() == ({"mark_stale"} if broken else set())


# -- silent feeds --------------------------------------------------------------------------------------------


class Hall:
    """A story with a feed that has been handed the first transaction, and somebody who watches it."""

    def __init__(self, after: int | None = -1) -> None:
        self.story = Story()
        self.watch = SilenceWatch(self.story.history, 10.0)
        self.feed: FeedLog = self.story.history.feed("reader", 0, after)
        self.story.append()
        if after is not None:
            self.deliver()

    def deliver(self) -> None:
        record = self.story.log[0][(-1 if self.feed.last is None else self.feed.last) + 1]
        self.feed.delivered(record.transaction_id, record.req_id, record.header, record.data, True)

    def wait(self, seconds: int, *, calm: bool = True) -> set[str]:
        for _ in range(seconds):
            self.story.seconds += 1.0
            self.watch.look(calm)
        return {violation.invariant for violation in self.story.history.violations}


def test_feed_silent() -> None:
    hall = Hall()
    hall.story.append()
    assert hall.wait(9) == set()
    assert hall.wait(5) == {"feed_silent"}
    assert len(hall.story.history.violations) == 1


def test_feed_silent_from_now_on() -> None:
    hall = Hall(after=None)
    assert hall.wait(15) == {"feed_silent"}


def test_feed_that_moves_has_all_or_is_not_waited_for() -> None:
    hall = Hall()
    assert hall.wait(30) == set()  # there is nothing it lacks
    for _ in range(3):
        hall.story.append()
    for _ in range(3):
        hall.wait(4)
        hall.deliver()
    assert hall.wait(30) == set()


@pytest.mark.parametrize("why", ["busy", "paused", "gone", "until", "fault"])
def test_feed_that_is_excused(why: str) -> None:
    hall = Hall()
    hall.story.append()
    hall.feed.busy = why == "busy"
    hall.feed.until = 0 if why == "until" else None
    if why == "paused":
        hall.feed.listening = lambda: False
    if why == "gone":
        hall.feed.gone = lambda: True
    assert hall.wait(40, calm=why != "fault") == set()
