"""What is begun leads somewhere: nothing is recorded only to be taken back by the next look, again and
again."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan import cluster
from operator_tests.plan.cluster import identity, name
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.model.desired import Move, MoveKind
from waltz_operator.model.facts import Facts, placement_of
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import TreeView, Unknown
from waltz_operator.model.task import Task, TaskKind
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.migration import decide_task
from waltz_operator.plan.replica_changes import MAX_REPORTED, begin_change

LOOKS = 4


def one_group(found: Facts, members: tuple[int, ...], wanted: tuple[int, ...]) -> Facts:
    """The same cluster with these nodes in the group of node 0, and only the wanted ones in the
    specification."""
    everybody = {
        node: identity(node)._replace(group=identity(0).group, name=str(node))
        if node in members
        else identity(node)
        for node in {*wanted, *members}
    }
    nodes = tuple(everybody[node] for node in sorted(wanted))
    by_connect = {one.connect_string: one for one in nodes}
    leaving = tuple(everybody[node] for node in sorted({*everybody} - {*wanted}))
    return replace(found, desired=replace(found.desired, nodes=nodes, by_connect=by_connect), leaving=leaving)


def rests(found: Facts, task: Task) -> str:
    """Nothing is recorded by any of several looks; what it waits for."""
    text = ""
    for _ in range(LOOKS):
        decision = decide_task(replace(found, tasks=(task,)), task)
        assert not any(record.state.value != "Pending" for record in decision.task.records)
        assert not decision.actions
        (blocked,) = decision.blocked
        assert blocked.reason == Reason.NO_TARGET
        task, text = decision.task, blocked.text
    return text


def two_copies_in_a_group() -> Facts:
    """Nodes 0, 3 and 4 are one group; 0 and 3 have a copy."""
    seen = cluster.facts(cluster.kube(nodes=(0, 1, 2, 3, 4)), nodes=(0, 1, 2, 3, 4), assigned=(0, 1, 2, 3))
    return one_group(seen, (0, 3, 4), (0, 1, 2, 3, 4))


def test_a_move_does_not_begin_where_the_group_has_a_second_copy() -> None:
    move = Task("m", "u", TaskKind.MOVE, "t", source=name(0), target=name(4))
    assert f"{name(3)} of the same group has a copy already" in rests(two_copies_in_a_group(), move)


def test_a_drain_finishes_what_a_failed_migration_has_left() -> None:
    """The group's second copy is what the drained node's partition moves to: nothing is copied."""
    drain = Task("m", "u", TaskKind.DRAIN, "t", source=name(0))
    decision = decide_task(two_copies_in_a_group(), drain)
    assert [(one.move.target, one.state.value) for one in decision.task.records] == [(name(3), "Started")]


def test_a_move_does_not_begin_to_a_node_that_leaves() -> None:
    seen = cluster.facts(cluster.kube(nodes=(0, 1, 2, 4)), nodes=(0, 1, 2, 4), assigned=(0, 1, 2))
    found = one_group(seen, (0, 4), (0, 1, 2))
    move = Task("m", "u", TaskKind.MOVE, "t", source=name(0), target=name(4))
    assert f"{name(4)} is not in the specification" in rests(found, move)


def test_the_cluster_does_not_record_a_change_that_is_over_already() -> None:
    """A node that leaves is unregistered, but ZooKeeper still has assignments for it: there is nothing left
    that can be done there."""
    seen = cluster.facts(cluster.kube(nodes=(0, 1, 2, 3)), nodes=(0, 1, 2, 3), assigned=(0, 1, 2))
    found = one_group(seen, (), (0, 1, 2))
    assert isinstance(found.tree, TreeView)
    groups = {node: group for node, group in found.tree.groups.items() if node != name(3)}
    said = replace(seen, nodes={**seen.nodes, name(3): cluster.answer(cluster.replica())}).nodes
    found = replace(found, tree=replace(found.tree, groups=groups), nodes=said, leaving=(identity(3),))
    assert begun(found) is None
    move = begun(replace(found, tree=seen.tree))
    assert move is not None
    assert move.kind is MoveKind.DROP


def begun(found: Facts) -> Move | None:
    """The change that is recorded as under way."""
    decision = Decision(found.memory)
    begin_change(found, decision)
    return decision.memory.operation


def group_exchanged(partitions: int, provable: int | None = None) -> Facts:
    """Group 2, whose node is dead, was exchanged for group 3 in the specification; of one partition the dead
    copy was set aside already, so that a new one may be added."""
    found = cluster.facts(cluster.kube(nodes=(0, 1, 3)), nodes=(0, 1, 3), assigned=(0, 1))
    assert isinstance(found.tree, TreeView)
    held = tuple(range(partitions))
    dead = tuple(one for one in held if one != provable)
    copies = {name(node): cluster.listed(node) for node in (0, 1)}
    dropped = {**copies, name(2): cluster.listed(2, cluster.SESSION - 1, 3)}
    tree = replace(
        found.tree,
        num_partitions=partitions,
        groups={name(node): node for node in range(4)},
        assignments={name(0): held, name(1): held, name(2): dead, name(3): ()},
        partitions={
            one: PartitionMetadata(0, cluster.SESSION, copies if one == provable else dropped) for one in held
        },
    )
    full = cluster.answer(*(cluster.replica() for _ in held))
    return replace(
        found,
        desired=replace(found.desired, partitions=partitions),
        tree=tree,
        nodes={name(0): full, name(1): full, name(2): Unknown("dead"), name(3): cluster.answer()},
        leaving=(identity(2),),
        placement=placement_of(tree),
    )


def test_a_dead_group_is_exchanged_however_many_partitions_there_are() -> None:
    """A new copy may be added only when the dead one was given up: by as many partitions as are blocked, that
    must not be hidden."""
    for partitions in (1, MAX_REPORTED - 1, MAX_REPORTED, 4 * MAX_REPORTED):
        found = group_exchanged(partitions)
        decision = Decision(found.memory)
        begin_change(found, decision)
        move = decision.memory.operation
        assert move is not None, partitions
        assert (move.kind, move.partition, move.source) == (MoveKind.DROP, 0, name(2))
        assert len(decision.blocked) == min(partitions, MAX_REPORTED)


def test_the_one_copy_that_can_be_added_is_added_whatever_blocks_the_others() -> None:
    move = begun(group_exchanged(4 * MAX_REPORTED, provable=3 * MAX_REPORTED))
    assert move is not None
    assert (move.kind, move.partition, move.target) == (MoveKind.ADD, 3 * MAX_REPORTED, name(3))


def test_what_is_blocked_is_reported_of_each_kind() -> None:
    """Nothing can begin: neither a new copy nor, without a second current one, giving up the dead one."""
    found = group_exchanged(3 * MAX_REPORTED)
    decision = Decision(found.memory)
    begin_change(replace(found, nodes={**found.nodes, name(1): Unknown("away")}), decision)
    assert decision.memory.operation is None
    kinds = [one.what.split()[0] for one in decision.blocked]
    assert kinds == [MoveKind.ADD.value] * MAX_REPORTED + [MoveKind.DROP.value] * MAX_REPORTED
