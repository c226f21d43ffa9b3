"""Where copies belong, and who waits for whom, on two groups of two nodes with four partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from operator_tests.plan.cluster import KEY, NOW, SESSION, listed, replica
from waltz_cluster.replica_rules import NeverStarted
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.api.migration import MigrationPhase, MoveState
from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.desired import Desired, Memory, Move, MoveKind
from waltz_operator.model.facts import Facts, placement_of
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import (
    KubeView,
    NodeView,
    TreeView,
    Unknown,
)
from waltz_operator.model.task import Record, Task, TaskKind
from waltz_operator.plan.cordons import cordoned
from waltz_operator.plan.migration import decide_task
from waltz_operator.plan.placement import seeds, still_wanted, targets, task_moves, wanted
from waltz_operator.plan.precedence import refiller, refills

PARTITIONS = 4
ALL = ("a0", "a1", "b0", "b1")
EVEN = {"a0": (0, 1), "a1": (2, 3), "b0": (0, 2), "b1": (1, 3)}
SILENT = Unknown("no route")


def identity(node: str) -> NodeIdentity:
    """a0 is node 0 of group a."""
    return NodeIdentity(node[0], node[1:], None, node, 2, False, None, node, f"{node}-0", f"data-{node}")


def look(
    assigned: Mapping[str, tuple[int, ...]],
    *,
    nodes: Collection[str] = ALL,
    started: bool = True,
    says: Mapping[str, NodeView | Unknown] | None = None,
    tasks: tuple[Task, ...] = (),
    partitions: int = PARTITIONS,
) -> Facts:
    """One look. `assigned`: by ZooKeeper; `nodes`: those of the specification, the others leave; all
    copies are current."""
    everybody = sorted({*ALL, *assigned})
    wanted_nodes = tuple(identity(node) for node in nodes)
    holders = {p: [node for node, held in assigned.items() if p in held] for p in range(partitions)}
    tree = TreeView(
        "c",
        KEY,
        partitions,
        dict.fromkeys(everybody, 1),
        {node: tuple(assigned.get(node, ())) for node in everybody},
        dict.fromkeys(everybody, 2),
        (0, 0, 0),
        {
            p: PartitionMetadata(0, SESSION, {node: listed(node) for node in holders[p]})
            if started
            else NeverStarted()
            for p in holders
        },
    )
    by_connect = {one.connect_string: one for one in wanted_nodes}
    answers: dict[str, NodeView | Unknown] = {
        node: NodeView({p: replica() for p in assigned.get(node, ())}, NOW) for node in everybody
    }
    return Facts(
        desired=Desired("c", "c", partitions, wanted_nodes, KEY, "copy-{}-{}".format, by_connect=by_connect),
        memory=Memory(KEY),
        kube=KubeView(),
        tree=tree,
        nodes={**answers, **(says or {})},
        servers={},
        now=NOW,
        leaving=tuple(identity(node) for node in everybody if node not in nodes),
        tasks=tasks,
        placement=placement_of(tree),
    )


def task(kind: TaskKind, source: str = "", name: str = "m", **more: object) -> Task:
    found = Task(name, name, kind, "", source)
    return replace(found, **more)  # type: ignore[arg-type]


def moves(found: Facts, asked: Task) -> list[tuple[int, str | None, str | None]]:
    return [(move.partition, move.source, move.target) for move in task_moves(found, asked)]


def pick(found: Facts, group: str, partition: int, *taken: str) -> str | None:
    """The node for one copy, when these have been given one each before."""
    nodes = targets(found, (group,))[group]
    for node in taken:
        nodes.take(node)
    return nodes.pick(partition)


# ------------------------------------------------------------------------------------------ the specification


def test_what_is_as_wanted_asks_for_nothing() -> None:
    assert list(wanted(look(EVEN))) == []


def test_a_group_without_a_copy_gets_one_before_anything_leaves() -> None:
    found = look({**EVEN, "b1": (3,), "c0": (0, 1)})
    first, *others = wanted(found)
    assert first == Move(MoveKind.ADD, 1, None, "b1")
    # Partition 1 lacks a copy in a wanted group, so the one in the group that goes is kept for now.
    assert others == [Move(MoveKind.DROP, 0, "c0", None)]


def test_a_copy_that_does_not_serve_may_be_given_up_first() -> None:
    found = look({**EVEN, "b1": (3,), "c0": (1,)}, says={"c0": SILENT})
    assert Move(MoveKind.DROP, 1, "c0", None) in list(wanted(found))


def test_partitions_of_a_node_that_leaves_go_to_another_one_of_its_group() -> None:
    found = look(EVEN, nodes=("a0", "b0", "b1"))
    assert list(wanted(found)) == [Move(MoveKind.MOVE, p, "a1", "a0") for p in (2, 3)]


def test_what_a_node_that_leaves_has_beyond_its_assignment_is_taken_off_it() -> None:
    surplus = NodeView({1: replica(), 2: replica()}, NOW)
    found = look({**EVEN, "c0": ()}, says={"c0": surplus})
    assert list(wanted(found)) == [Move(MoveKind.DROP, p, "c0", None) for p in (1, 2)]


def test_partitions_that_were_never_started_are_seeded_evenly_in_every_group() -> None:
    given = seeds(look({}, started=False))
    assert {node: len(held) for node, held in given.items()} == dict.fromkeys(ALL, 2)
    for group in ("a", "b"):
        of_group = [p for node, held in given.items() if node.startswith(group) for p in held]
        assert sorted(of_group) == list(range(PARTITIONS))
    assert (
        seeds(look({}, started=True)) == {}
    )  # what was started is added by a copy, never by a mere assignment


def test_a_new_copy_goes_where_part_of_it_is_then_to_who_answers_then_to_the_emptiest() -> None:
    held = {"a0": (1, 2, 3), "b0": (0, 1, 2, 3)}
    assert pick(look(held), "a", 0) == "a1"
    assert pick(look(held, says={"a1": SILENT}), "a", 0) == "a0"
    assert pick(look(held, says={"a0": NodeView({0: replica()}, NOW)}), "a", 0) == "a0"
    assert pick(look(held), "a", 0, *["a1"] * 4) == "a0"
    assert pick(look({**held, "a1": (0,)}), "a", 0) == "a0"
    assert pick(look({"a0": (0,), "a1": (0,)}), "a", 0) is None


def test_nodes_that_are_drained_get_nothing_new() -> None:
    drain = task(TaskKind.DRAIN, "a1")
    assert pick(look({}, tasks=(drain,)), "a", 0) == "a0"
    for open_again in (
        replace(drain, dry_run=True),
        replace(drain, cancel=True),
        replace(drain, phase=MigrationPhase.FAILED),
        replace(drain, phase=MigrationPhase.CANCELLED),
    ):
        assert cordoned(look({}, tasks=(open_again,))) == frozenset()
    under_way = (Record(Move(MoveKind.MOVE, 0, "a1", "a0"), MoveState.COPYING),)
    assert cordoned(look({}, tasks=(replace(drain, cancel=True, records=under_way),))) == {"a1"}
    assert cordoned(look({}, tasks=(replace(drain, phase=MigrationPhase.COMPLETED),))) == {"a1"}


@pytest.mark.parametrize(
    ("move", "nodes", "held", "wanted_still"),
    [
        (Move(MoveKind.DROP, 2, "a1", None), ("a0", "b0", "b1"), EVEN, True),
        (Move(MoveKind.DROP, 2, "a1", None), ALL, EVEN, False),  # it came back
        (Move(MoveKind.ADD, 0, None, "a1"), ALL, {"b0": (0,)}, True),
        (Move(MoveKind.ADD, 0, None, "a1"), ("a0", "b0", "b1"), {"b0": (0,)}, False),  # the target goes
        (Move(MoveKind.ADD, 0, None, "a1"), ALL, EVEN, False),  # another node of the group has it
        (Move(MoveKind.MOVE, 2, "a1", "a0"), ("a0", "b0", "b1"), EVEN, True),
        (Move(MoveKind.MOVE, 2, "a1", "a0"), ALL, EVEN, False),
        (Move(MoveKind.MOVE, 2, "a1", "a0"), ALL, {**EVEN, "a0": (0, 1, 2)}, True),  # too late to turn back
    ],
)
def test_a_change_under_way_ends_with_its_reason(
    move: Move, nodes: tuple[str, ...], held: dict[str, tuple[int, ...]], wanted_still: bool
) -> None:
    assert still_wanted(look(held, nodes=nodes), move) is wanted_still


# ------------------------------------------------------------------------------------------------- migrations


def test_a_move_takes_the_partitions_that_it_names() -> None:
    asked = task(TaskKind.MOVE, "a0", target="a1")
    assert moves(look(EVEN), asked) == [(0, "a0", "a1"), (1, "a0", "a1")]
    assert moves(look(EVEN), replace(asked, partitions=(1, 2))) == [(1, "a0", "a1")]


def test_a_drain_spreads_over_the_rest_of_the_group() -> None:
    held = {"a0": (0, 1, 2, 3), "a1": (), "a2": (), "b0": (0, 1, 2, 3)}
    asked = task(TaskKind.DRAIN, "a0")
    found = look(held, nodes=(*ALL, "a2"), tasks=(asked,))
    assert moves(found, asked) == [(p, "a0", ("a1", "a2")[p % 2]) for p in range(PARTITIONS)]


def test_a_rebalance_ends_when_nodes_differ_by_one() -> None:
    asked = task(TaskKind.REBALANCE, group="a")
    assert moves(look(EVEN), asked) == []
    held = {**EVEN, "a0": (0, 1, 2), "a1": (3,)}
    assert moves(look(held), asked) == [(2, "a0", "a1")]
    assert moves(look({**EVEN, "a0": (0, 1, 2), "a1": (2, 3)}), asked) == []
    both = look({**EVEN, "a0": (0, 1, 2), "a1": (2,)})
    assert moves(both, asked) == [(1, "a0", "a1")]  # what the target has already does not move there


def sized(*sizes: int | None) -> dict[str, NodeView | Unknown]:
    """Partitions 0, 1, … of these sizes, on a0."""
    copies = {p: replace(replica(), size_bytes=size) for p, size in enumerate(sizes)}
    return {"a0": NodeView(copies, NOW), "a1": NodeView({}, NOW)}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((900, 10, 10, 900), [(3, "a0", "a1")]),  # the rest is not worth it
        ((900, 300, 300, 300), [(0, "a0", "a1")]),
        ((900, 0, 0, 0), []),
        ((0, 0, 0, 0), []),
        ((500, 400, 300, 200), [(0, "a0", "a1"), (3, "a0", "a1")]),
    ],
)
def test_a_rebalance_by_bytes_moves_what_makes_nodes_more_alike(
    sizes: tuple[int, ...], expected: list[tuple[int, str, str]]
) -> None:
    asked = task(TaskKind.REBALANCE, group="a", by_bytes=True)
    held = {**EVEN, "a0": (0, 1, 2, 3), "a1": ()}
    assert moves(look(held, says=sized(*sizes)), asked) == expected


def test_a_rebalance_by_bytes_moves_a_partition_once_and_ends() -> None:
    """What has grown meanwhile makes it move nothing back."""
    done = Record(Move(MoveKind.MOVE, 3, "a0", "a1"), MoveState.DONE)
    asked = task(TaskKind.REBALANCE, group="a", by_bytes=True, records=(done,))
    held = {**EVEN, "a0": (), "a1": (0, 1, 2, 3)}
    says = sized(5, 5, 5, 900)
    says = {"a0": says["a1"], "a1": says["a0"]}
    assert moves(look(held, says=says), asked) == []


def test_a_rebalance_by_bytes_waits_for_sizes_and_names_what_is_missing() -> None:
    asked = task(TaskKind.REBALANCE, group="a", by_bytes=True)
    held = {**EVEN, "a0": (0, 1, 2, 3), "a1": ()}
    for says in (sized(1, 2, 3, None), {**sized(1, 2, 3, 4), "a0": SILENT}):
        found = look(held, says=says)
        assert moves(found, asked) == []
        decision = decide_task(found, asked)
        assert decision.reason is Reason.NODE_SILENT
        assert "does not report how large" in decision.message


def test_a_replacement_refills_what_is_positively_lost() -> None:
    asked = task(TaskKind.REPLACE, "a0")
    half = NodeView({0: replica()}, NOW)
    assert moves(look(EVEN, says={"a0": half}), asked) == [(1, "a0", "a0")]
    assert moves(look(EVEN, says={"a0": SILENT}), asked) == []  # silence is no proof
    assert moves(look(EVEN, says={"a0": half}, nodes=("a1", "b0", "b1")), asked) == []


def test_without_zookeeper_there_is_no_plan() -> None:
    found = replace(look(EVEN, nodes=("a0",)), tree=SILENT)
    assert list(wanted(found)) == []
    assert moves(found, task(TaskKind.MOVE, "a0", target="a1")) == []


# -------------------------------------------------------------------------------------------------- who waits


def test_other_changes_of_a_partition_rest_while_its_lost_copy_is_refilled() -> None:
    asked = task(TaskKind.REPLACE, "a0", name="refill")
    found = look(EVEN, says={"a0": NodeView({0: replica()}, NOW)}, tasks=(task(TaskKind.DRAIN, "b0"), asked))
    assert (refiller(found, 1), refiller(found, 0)) == ("refill", None)
    for idle in (
        replace(asked, cancel=True),
        replace(asked, dry_run=True),
        replace(asked, approved=False),
        replace(asked, phase=MigrationPhase.COMPLETED),
        replace(asked, kind=TaskKind.DRAIN),
    ):
        assert not refills(found, idle, 1)
    under_way = (Record(Move(MoveKind.REFILL, 1, "a0", "a0"), MoveState.COPYING),)
    cancelled = replace(asked, cancel=True, records=under_way)
    assert refills(found, cancelled, 1)  # one that is at it is waited for, also on its way back
    assert not refills(found, cancelled, 0)
