"""`waltz zk accept-restored`, enumerated: replicas that were changed since the copy, recoveries that were
interrupted, one node of the last replicas lost. Nothing acknowledged is lost, and who is left can open the
partition, or the refusal says what to do.

The real decision of the command, then the real recovery; what was acknowledged is counted here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from server_tests.store.model import (
    Node,
    acknowledged,
    answer,
    metadata,
    reported,
    run_until_stuck,
    stream,
)
from waltz_admin.errors import UnsafeChangeError
from waltz_admin.forget import without_replica
from waltz_admin.restored_metadata import Nodes, NothingToAcceptError, Rebuilt, rebuild
from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import PartitionMetadata
from waltz_server.store.recovery import Recovery

REGISTERED = "ABCD"
CHANGES = ("ABC", "ABD", "AB", "ABCD")
"""What the replicas ABC become."""


@dataclass
class World:
    nodes: dict[str, Node] = field(default_factory=lambda: {name: Node() for name in "ABC"})
    assigned: str = "ABC"
    now: PartitionMetadata = field(default_factory=lambda: metadata(-1))
    copies: list[tuple[PartitionMetadata, str]] = field(default_factory=list)
    truth: list[str] = field(default_factory=list)

    def twin(self) -> World:
        nodes = {name: node.copy() for name, node in self.nodes.items()}
        return World(nodes, self.assigned, self.now, list(self.copies), list(self.truth))

    def write(self, written: PartitionMetadata) -> None:
        self.now = written
        self.copies.append((written, self.assigned))

    def recover(self, present: str, limit: int | None = None) -> Recovery:
        before, session = self.now, self.now.session_id + 1
        self.write(PartitionMetadata(1, session, before.replicas))
        recovery = Recovery(
            partition_id=0, session_id=session, replicas=list(self.assigned), metadata=self.now
        )
        here = [name for name in present if name in self.nodes and name in self.assigned]
        for name in here:
            answer(recovery, self.nodes, name)
        recovery.gather_over()
        run_until_stuck(recovery, self.nodes, here, session, limit)
        return recovery

    def open(self, recovery: Recovery, more: tuple[int, ...]) -> bool:
        """List who is recovered; the first of them stores so many records, the second so many, ..."""
        if recovery.resolved is None or not recovery.quorum_recovered:
            return False
        self.write(recovery.metadata_after(self.now))
        recovery.metadata_written(self.now)
        voters = recovery.recovered
        for name, count in zip(voters, more, strict=False):
            first = self.nodes[name].max_txid + 1
            self.nodes[name].log += stream(f"s{self.now.session_id}", first, first + count - 1)
        mark = acknowledged([self.nodes[name].max_txid for name in voters], quorum_of(len(self.assigned)))
        longest = max((self.nodes[name].log for name in voters), key=len)
        self.truth = max(self.truth, longest[: mark + 1], key=len)
        return True

    def change(self, assigned: str, *, delete: bool) -> None:
        """All replicas are whole, as the commands demand; who is taken out keeps its copy, or not."""
        assert self.open(self.recover(self.assigned), (1,) * len(self.assigned))
        for name in assigned:
            self.nodes.setdefault(name, Node())
        for name in set(self.assigned) - set(assigned) if delete else ():
            del self.nodes[name]
        self.assigned = assigned


def histories() -> Iterator[tuple[str, World]]:
    for first, assigned, delete in itertools.product(("ABC", "AB"), CHANGES, (False, True)):
        started = World()
        assert started.open(started.recover(first), (2, 1, 1))
        if assigned != "ABC":
            started.change(assigned, delete=delete)
        elif delete:
            continue
        presents = [
            "".join(chosen)
            for size in range(quorum_of(len(assigned)), len(assigned) + 1)
            for chosen in itertools.combinations(assigned, size)
        ]
        for present, more in itertools.product(presents, ((2, 2, 2, 2), (3, 1, 3))):
            opened = started.twin()
            if not opened.open(opened.recover(present), more):
                continue
            yield f"{first=} {assigned=} {delete=} {present=} {more=}", opened
            for again, limit in itertools.product(presents, (1, 2, 4)):
                world = opened.twin()
                world.recover(again, limit)
                yield f"{first=} {assigned=} {delete=} {present=} {more=} {again=} {limit=}", world


def rolled_back() -> Iterator[tuple[str, World]]:
    """Every older copy, each state once."""
    seen = set()
    for case, after in histories():
        for number, (copy, assigned) in enumerate(after.copies[:-1]):
            key = str((after.nodes, copy, assigned, after.truth))
            if key in seen:
                continue
            seen.add(key)
            world = after.twin()
            world.now, world.assigned = copy, assigned
            yield f"{case} copy={number} of {len(after.copies)}", world


def ask(world: World, lost: str = "", removed: str = "", silent: str = "") -> Rebuilt:
    answering = [name for name in REGISTERED if name not in {lost, silent}]
    held = {name: reported(world.nodes[name]) for name in answering if name in world.nodes}
    nodes = Nodes(REGISTERED, world.assigned, answering, held, lost=set(lost), removed=set(removed))
    return rebuild(0, world.now, nodes)


def accepted(world: World, rebuilt: Rebuilt) -> World:
    """What was written; nodes that are assigned and have no copy get an empty one (`sync-partitions`)."""
    twin = world.twin()
    twin.now = rebuilt.after
    twin.assigned = "".join(sorted({*world.assigned, *rebuilt.reassign} - {*rebuilt.unassign}))
    for name in twin.assigned:
        twin.nodes.setdefault(name, Node())
    return twin


def judge(world: World, recovery: Recovery, case: str) -> None:
    if recovery.resolved is None or recovery.fault is not None:
        return
    assert recovery.resolved >= len(world.truth) - 1, f"lost: {case}"
    for name in recovery.recovered:
        assert world.nodes[name].log[: len(world.truth)] == world.truth, f"lost on {name}: {case}"


def check_opens(world: World, case: str, lost: str = "") -> None:
    """Whoever is there recovers, interrupted or not; with all who are left it is decided, and a majority
    recovers."""
    living = "".join(name for name in world.assigned if name != lost)
    sets = ["".join(one) for size in range(2, len(living)) for one in itertools.combinations(living, size)]
    for present, limit in ((living, None), (living, 2), *((one, None) for one in sets)):
        twin = world.twin()
        recovery = twin.recover(present, limit)
        judge(twin, recovery, f"{case} {present=} {limit=}")
        if present != living or limit is not None:
            recovery = twin.recover(living)
            judge(twin, recovery, f"{case} {present=} {limit=} again")
        assert recovery.quorum_recovered, f"{case} {present=} {limit=} {recovery.condition()}"


ROLLED_BACK = list(rolled_back())


def bring_back(error: UnsafeChangeError) -> str:
    """Who is named in the refusal: they can be named as removed."""
    found = re.search(r"bring back: ([A-D, ]+)\. Name with --removed", str(error))
    assert found, error
    return found[1].replace(", ", "")


def settled(world: World, lost: str = "") -> Rebuilt | None:
    """As an administrator does it who does what a refusal says; None: nothing is wrong."""
    try:
        return ask(world, lost=lost)
    except NothingToAcceptError:
        return None
    except UnsafeChangeError as error:
        removed = bring_back(error)
        out = "".join(name for name in removed if name not in world.nodes and name != lost)
        try:
            return ask(world, lost=lost, removed=out)
        except UnsafeChangeError:  # too few are left that know anything: a second word is needed to go on
            return ask(world, lost="", removed=removed)


def test_safety_a8_the_way_out_loses_nothing_when_replicas_changed_or_a_recovery_was_interrupted() -> None:
    done = 0
    for case, world in ROLLED_BACK:
        rebuilt = settled(world)
        if rebuilt is not None:
            check_opens(accepted(world, rebuilt), case)
            done += 1
    assert done > 500


def test_no_older_zookeeper_makes_copies_differ_that_are_compared() -> None:
    """So nobody is refused for a difference who only has an older ZooKeeper."""
    done = 0
    for case, world in ROLLED_BACK:
        rebuilt = settled(world)
        if rebuilt is None or rebuilt.doubt is None:
            continue
        for pair in itertools.product(rebuilt.doubt.later, rebuilt.doubt.earlier):
            one, other = (world.nodes[name].log for name in pair)
            both = min(len(one), len(other))
            assert one[:both] == other[:both], f"{case} {pair=}"
            done += 1
    assert done > 200


def test_safety_a8_the_way_out_loses_nothing_with_one_node_lost_besides() -> None:
    """It does not answer, and is named as lost; or it was started on an empty disk. Without its name nothing
    is written while it is silent."""
    done = 0
    for case, world in ROLLED_BACK[::3]:
        for lost, named in itertools.product(sorted(world.nodes), (True, False)):
            twin = world.twin()
            del twin.nodes[lost]
            rebuilt = settled(twin, lost if named else "")
            if rebuilt is not None:
                check_opens(accepted(twin, rebuilt), f"{case} {lost=} {named=}", lost)
                done += 1
                with pytest.raises(UnsafeChangeError, match=f"bring back: {lost}"):
                    ask(twin, silent=lost)
    assert done > 500


def test_safety_a8_a_disk_that_is_lost_after_the_way_out_loses_nothing() -> None:
    """Before the partition has opened. If it cannot be decided without that replica, `waltz storage forget`
    gives up what is empty."""
    forgotten = 0
    for case, world in ROLLED_BACK:
        rebuilt = settled(world)
        if rebuilt is None or any(world.nodes.get(n, Node()).session < 0 for n in rebuilt.after.replicas):
            continue  # the disk would be the second one
        for lost in rebuilt.after.replicas:
            twin = accepted(world, rebuilt)
            twin.nodes[lost].wipe()
            recovery = twin.recover(twin.assigned)
            judge(twin, recovery, f"{case} {lost=}")
            if not recovery.quorum_recovered:
                forgotten += 1
                for empty in [name for name in twin.now.replicas if twin.nodes[name].session < 0]:
                    twin.write(without_replica(twin.now, empty))
                recovery = twin.recover(twin.assigned)
                judge(twin, recovery, f"{case} {lost=} forgotten")
                assert recovery.quorum_recovered, f"{case} {lost=} {recovery.condition()}"
    assert forgotten > 20
