"""Whole runs without a fault in which one thing is spoiled on its way to the observer: the checkers see it
there, too."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.checkers.history import FeedLog, Outcome, Truth
from tests.sim.cluster.carried_marks import CarriedMarks
from tests.sim.cluster.world import Choice, World
from tests.sim.kernel.loop import collect_remains
from tests.sim.workloads.catalogue import choose
from tests.sim.workloads.tracked import TrackedClient
from waltz_protocol.types import Record, ReqId
from waltz_storage.engine.storage_manager import StorageManager

SEED = 1
OLD_MARKS_FROM = 60.0


class DoctoredWorld(World):
    """`doctor` changes what was found on the disks."""

    doctor: Callable[[DoctoredWorld, Truth], None] | None = None

    def check(self, truth: Truth) -> None:
        """See the base class."""
        if self.doctor is not None:
            self.doctor(self, truth)
        super().check(truth)


def run(doctor: Callable[[World, Truth], None] | None = None) -> set[str]:
    worlds = [DoctoredWorld(SEED, Choice("calm", second_opinion=False), choose)]
    worlds[0].doctor = doctor
    result = worlds[0].run()
    collect_remains(worlds)
    return {violation.invariant for violation in result.violations}


def test_an_append_that_failed_and_lies_above_the_mark_of_a_replica() -> None:
    def leave_it_there(world: World, truth: Truth) -> None:
        op = next(op for op in world.history.appends if op.outcome is Outcome.FAILED)
        records = next(iter(truth.replicas[op.partition].values()))
        records.append(Record(len(records), ReqId(1, 1, op.partition, 1), op.header, op.data, 0))

    assert "failed_on_replica" in run(leave_it_there)


def test_a_feed_that_is_handed_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader stops being called after a while; nothing else is wrong with it."""
    delivered = FeedLog.delivered

    def some(log: FeedLog, *what: Any) -> None:
        if log.count < 3:
            delivered(log, *what)

    monkeypatch.setattr(FeedLog, "delivered", some)
    assert "feed_silent" in run()


def test_marks_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """From some time on everybody is given the mark that the first one got."""
    asked = TrackedClient.high_water_mark
    first: dict[int, int] = {}

    async def old(client: TrackedClient, partition: int, deadline_seconds: float = 10.0) -> int | None:
        history = client.history
        if history.now() < OLD_MARKS_FROM or partition not in first:
            value = await asked(client, partition, deadline_seconds)
            if value is not None:
                first.setdefault(partition, value)
            return value
        floor, invoked = history.book.mark(partition), history.tick()
        history.mark_read(
            client.process, "another", partition, invoked, floor, -1, first[partition], history.now()
        )
        return first[partition]

    monkeypatch.setattr(TrackedClient, "high_water_mark", old)
    assert run() == {"mark_stale"}


@pytest.mark.parametrize("filled_again", [True, False])
def test_a_mark_over_a_tail_that_was_cut(monkeypatch: pytest.MonkeyPatch, filled_again: bool) -> None:
    """All copies of partition 0 seem to be cut at 2 once they have eight records; then one of them, or all,
    have six again, and the first takes these for committed."""
    watched = CarriedMarks.ran
    views: dict[str, SimpleNamespace] = {}

    def ran(marks: CarriedMarks, node: str, manager: StorageManager) -> str | None:
        real = manager.partitions.get(0)
        if real is None:
            return watched(marks, node, manager)
        view = views.setdefault(node, SimpleNamespace(max_txid=-1, committed=-1, step=0))
        first, steps = node == min(views), [one.step for one in views.values()]
        if len(views) < len(marks._furthest.get(0, ())) or view.step == 0:
            view.max_txid, view.committed = real.max_txid, real.committed
            view.step = int(real.max_txid >= 7)
        elif view.step == 1 and min(steps) >= 1:
            view.max_txid = view.committed = 2
            view.step = 2
        elif view.step == 2 and min(steps) >= 2 and (filled_again or first):
            view.max_txid = 5
            view.step = 3
        elif view.step == 3 and first and (not filled_again or min(steps) == 3):
            view.committed = 5
        return watched(marks, node, SimpleNamespace(partitions={0: view}))  # type: ignore[arg-type]

    monkeypatch.setattr(CarriedMarks, "ran", ran)
    assert run() == (set() if filled_again else {"carried_mark"})
    assert views[min(views)].committed == 5
