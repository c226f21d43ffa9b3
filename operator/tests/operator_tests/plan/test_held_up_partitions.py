"""Many partitions that cannot be moved now come before those that can."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan.cluster import NOW, SESSION, replica
from operator_tests.plan.cluster import listed as in_metadata
from operator_tests.plan.test_placement import look, task
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.model.facts import placement_of
from waltz_operator.model.snapshot import NodeView, TreeView, Unknown
from waltz_operator.model.task import TaskKind
from waltz_operator.plan.migration import decide_task

MANY = 250


def test_partitions_that_can_be_moved_are_moved_whatever_holds_up_the_first_ones() -> None:
    """b0 is away, with the other copy of partitions 0 to 99; b1 has that of the others."""
    found = look({"a0": (), "b0": ()}, nodes=("a0", "a1", "b0", "b1"))
    held = {"a0": tuple(range(MANY)), "a1": (), "b0": tuple(range(100)), "b1": tuple(range(100, MANY))}
    metadata = {
        p: PartitionMetadata(0, SESSION, {n: in_metadata(n) for n, has in held.items() if p in has})
        for p in range(MANY)
    }
    assert isinstance(found.tree, TreeView)
    tree = replace(found.tree, num_partitions=MANY, assignments=held, partitions=metadata)
    nodes: dict[str, NodeView | Unknown] = {
        n: NodeView({p: replica(size_bytes=1) for p in has}, NOW) for n, has in held.items()
    }
    nodes["b0"] = Unknown("it does not answer")
    one = task(TaskKind.DRAIN, "a0", parallel=4, deadline_seconds=60)
    found = replace(found, tree=tree, nodes=nodes, placement=placement_of(tree), tasks=(one,))
    decision = decide_task(found, one)
    assert [record.move.partition for record in decision.task.under_way] == [100, 101, 102, 103]
