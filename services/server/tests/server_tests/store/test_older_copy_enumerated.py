"""ZooKeeper put back from every older copy of small histories: nothing acknowledged is lost, and nothing is
suspected in vain.

The histories are played with the product's recovery; what was acknowledged is counted here, from what voters
stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from server_tests.store.model import (
    Node,
    acknowledged,
    answer,
    metadata,
    reported,
    run_until_stuck,
    stream,
    take_step,
)
from waltz_admin.errors import UnsafeChangeError
from waltz_admin.restored_metadata import Nodes, NothingToAcceptError, rebuild
from waltz_cluster.older_copy import evidence
from waltz_cluster.serializers import PartitionMetadata
from waltz_server.store.recovery import Recovery

NAMES = "ABC"
QUORUM = 2
SOME = ("AB", "AC", "BC", "ABC")


@dataclass
class World:
    """The nodes, what ZooKeeper holds, and everything it ever held."""

    nodes: dict[str, Node] = field(default_factory=lambda: {name: Node() for name in NAMES})
    now: PartitionMetadata = field(default_factory=lambda: metadata(-1))
    copies: list[PartitionMetadata] = field(default_factory=list)
    truth: list[str] = field(default_factory=list)

    def twin(self) -> World:
        nodes = {name: node.copy() for name, node in self.nodes.items()}
        return World(nodes, self.now, list(self.copies), list(self.truth))

    def write(self, written: PartitionMetadata) -> None:
        self.now = written
        self.copies.append(written)

    def suspected(self, present: str = NAMES) -> list[str]:
        """What the nodes prove against ZooKeeper."""
        nodes = self.nodes
        return [name for name in present if evidence(self.now, name, nodes[name].info, nodes[name].max_txid)]

    def recover(self, present: str, limit: int | None = None) -> Recovery:
        """Take the next session, and do the steps of those who are present."""
        before = self.now
        session = before.session_id + 1
        self.write(PartitionMetadata(1, session, before.replicas))
        recovery = Recovery(partition_id=0, session_id=session, replicas=list(NAMES), metadata=self.now)
        for name in present:
            answer(recovery, self.nodes, name)
        recovery.gather_over()
        run_until_stuck(recovery, self.nodes, present, session, limit)
        return recovery

    def open(self, recovery: Recovery, more: tuple[int, ...]) -> None:
        """List who is recovered; the first of them stores so many new records, the second so many, ..."""
        self.write(recovery.metadata_after(self.now))
        recovery.metadata_written(self.now)
        assert recovery.complete
        self._append(recovery.recovered, more)

    def join(self, recovery: Recovery, late: str, with_whom: str, count: int) -> None:
        """A late replica is filled and listed; then it and one other store more, and the third does not."""
        answer(recovery, self.nodes, late)
        run_until_stuck(recovery, self.nodes, NAMES, recovery.session_id)
        if late not in recovery.recovered:
            return
        self.write(recovery.metadata_after(self.now))
        recovery.metadata_written(self.now)
        longest = self.nodes[with_whom].log
        self.nodes[late].log += longest[len(self.nodes[late].log) :]
        self._append([late, with_whom], (count, count))

    def _append(self, voters: list[str], more: tuple[int, ...]) -> None:
        session = self.now.session_id
        for name, count in zip(voters, more, strict=False):
            first = self.nodes[name].max_txid + 1
            self.nodes[name].log += stream(f"s{session}", first, first + count - 1)
        mark = acknowledged([self.nodes[name].max_txid for name in voters], QUORUM)
        longest = max((self.nodes[name].log for name in voters), key=len)
        self.truth = max(self.truth, longest[: mark + 1], key=len)


def histories() -> Iterator[tuple[str, World]]:
    """Two or three sessions, with late joiners, lagging voters, and recoveries that were interrupted in
    between."""
    for first, second in itertools.product(("ABC", "AB"), SOME):
        for more in ((2, 2, 2), (2, 1, 0)):
            for limit in (None, 0, 1, 2, 3, 5, 8):
                for late in (False, True):
                    world = World()
                    world.open(world.recover(first), more)
                    if limit is not None:
                        world.recover("BC" if first == "AB" else "AC", limit)
                    recovery = world.recover(second)
                    if recovery.resolved is None or not recovery.quorum_recovered:
                        continue
                    world.open(recovery, (1, 2, 0))
                    missing = [name for name in NAMES if name not in recovery.recovered]
                    if late:
                        if not missing:
                            continue
                        world.join(recovery, missing[0], recovery.recovered[0], 2)
                    yield f"{first=} {second=} {more=} {limit=} {late=}", world


HISTORIES = list(histories())


@pytest.mark.long
def test_safety_a8_nothing_is_suspected_while_zookeeper_lost_nothing() -> None:
    """After every session, and whenever a recovery is interrupted, whoever is there."""
    for case, after in HISTORIES:
        assert not after.suspected(), case
        for present in SOME:
            for limit in range(14):
                world = after.twin()
                world.recover(present, limit)
                assert not world.suspected(), f"{case} {present=} {limit=}"
                for again, more in itertools.product(SOME, (2, 6)):
                    twin = world.twin()
                    recovery = twin.recover(again, more)
                    assert recovery.fault is None, f"{case} {present=} {limit=} {again=}"
                    assert not twin.suspected(), f"{case} {present=} {limit=} {again=} {more=}"


def judge(world: World, recovery: Recovery, case: str) -> None:
    """Acknowledged means kept: in what is decided, and on whoever is recovered."""
    if recovery.resolved is not None and recovery.fault is None:
        assert recovery.resolved >= len(world.truth) - 1, f"lost: {case}"
        for name in recovery.recovered:
            assert world.nodes[name].log[: len(world.truth)] == world.truth, f"lost on {name}: {case}"


def asked(world: World, names: str = NAMES) -> Nodes:
    """What the way out is given: the others are silent, and named as lost."""
    held = {name: reported(world.nodes[name]) for name in names}
    return Nodes(NAMES, NAMES, names, held, lost=set(NAMES) - set(names))


def check_way_out(world: World, case: str) -> int:
    """Accept what the nodes hold, by every set that answers; then recover with every set. How many were
    decided."""
    decided = 0
    for answering in SOME:
        try:
            rebuilt = rebuild(0, world.now, asked(world, answering))
        except (NothingToAcceptError, UnsafeChangeError):
            continue
        for first, limit in itertools.product(SOME, (None, 1, 3)):
            twin = world.twin()
            twin.now = rebuilt.after
            last = twin.recover(first, limit)
            judge(twin, last, f"{case} {answering=} {first=} {limit=}")
            for second in SOME if limit is not None else ():
                again = twin.twin()
                judge(again, again.recover(second), f"{case} {answering=} {first=} {limit=} {second=}")
            if limit is None and first == "ABC":
                assert last.resolved is not None, (
                    f"all are there, and nothing is decided: {case} {last.condition()}"
                )
                assert not rebuild_needed(twin), case
            decided += last.resolved is not None
    return decided


def rebuild_needed(world: World) -> bool:
    try:
        rebuild(0, world.now, asked(world))
    except NothingToAcceptError:
        return False
    return True


def rolled_back() -> Iterator[tuple[str, World]]:
    for case, after in HISTORIES:
        for number, copy in enumerate(after.copies[:-1]):
            world = after.twin()
            world.now = copy
            yield f"{case} copy={number} of {len(after.copies)}", world


@pytest.mark.long
def test_safety_a8_no_older_copy_of_zookeeper_loses_an_acknowledged_record() -> None:
    """Sessions are tried one after another, with every two or three replicas, each interrupted or not."""
    faults = opened = ways_out = 0
    for case, world in rolled_back():
        for first in SOME:
            if world.suspected(first):
                faults += 1
                ways_out += check_way_out(world, case) if first == "ABC" else 0
                continue
            for limit in (None, 0, 2, 5):
                twin = world.twin()
                recovery = twin.recover(first, limit)
                judge(twin, recovery, f"{case} {first=} {limit=}")
                opened += recovery.resolved is not None
                for second in SOME:
                    if not twin.suspected(second):
                        again = twin.twin()
                        judge(again, again.recover(second), f"{case} {first=} {limit=} {second=}")
    assert faults > 1000
    assert opened > 1000
    assert ways_out > 1000


def test_safety_a8_the_way_out_loses_nothing_with_a_disk_lost_besides() -> None:
    """A minority, one of three, is emptied before the copy is put back: fewer may be decided, and nothing
    wrongly."""
    decided = 0
    for case, world in rolled_back():
        for lost in NAMES:
            twin = world.twin()
            twin.nodes[lost].wipe()
            for answering, present in itertools.product(SOME, SOME):
                try:
                    rebuilt = rebuild(0, twin.now, asked(twin, answering))
                except (NothingToAcceptError, UnsafeChangeError):
                    continue
                again = twin.twin()
                again.now = rebuilt.after
                recovery = again.recover(present)
                judge(again, recovery, f"{case} {lost=} {answering=} {present=}")
                decided += recovery.resolved is not None
    assert decided > 500


def test_safety_a8_a_session_that_a_majority_contradicts_is_not_accepted() -> None:
    """One node claims a session that nobody else knows, and a majority holds more records than it."""
    world = next(world for case, world in HISTORIES if "first='ABC' second='ABC'" in case)
    nodes = asked(world)
    copies = dict(nodes.held)
    shortest = min(copies, key=lambda name: copies[name].max_transaction_id or 0)
    copies[shortest] = replace(
        copies[shortest], session_id=1000, low_water_mark=0, local_low_water_mark=0, max_transaction_id=0
    )
    with pytest.raises(UnsafeChangeError, match="hold more records"):
        rebuild(0, world.now, replace(nodes, held=copies))


def test_the_histories_are_many_and_differ() -> None:
    assert len(HISTORIES) > 60
    assert len({tuple(world.truth) for _, world in HISTORIES}) > 5


def test_safety_a8_three_interrupted_recoveries_leave_no_fault() -> None:
    """Nothing was put back; each recovery ends when one node has written its session down, and another node
    is absent each time."""
    world = World()
    world.open(world.recover(NAMES), (12, 10, 10))
    for session, present in ((1, "BC"), (2, "CA"), (3, None)):
        marked = [name for name in NAMES if world.nodes[name].session == session - 1]
        there = present or "".join(name for name in NAMES if name not in marked)
        world.write(PartitionMetadata(1, session, world.now.replicas))
        recovery = Recovery(partition_id=0, session_id=session, replicas=list(NAMES), metadata=world.now)
        for name in there:
            answer(recovery, world.nodes, name)
        recovery.gather_over()
        while not any(world.nodes[name].session == session for name in there):
            assert any(take_step(recovery, world.nodes, name, session) for name in there)
    for present in SOME:
        twin = world.twin()
        found = twin.recover(present)
        assert (found.resolved, found.fault, twin.suspected()) == (11, None, []), present
