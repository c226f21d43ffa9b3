"""Which node of a group each new copy goes to, for all partitions of a pass."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from operator_tests.plan.cluster import NOW, replica
from operator_tests.plan.test_placement import SILENT, look
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import NodeView, Unknown
from waltz_operator.plan import placement
from waltz_operator.plan.placement import Targets, seeds

NODES = ("a0", "a1", "a2", "a3")
PARTITIONS = 12


def found(random: Random) -> Facts:
    """Copies anywhere, nodes that are silent, nodes that have part of a copy."""
    held = {node: tuple(p for p in range(PARTITIONS) if random.random() < 0.2) for node in NODES}
    says: dict[str, NodeView | Unknown] = {}
    for node in NODES:
        has = {p: replica() for p in range(PARTITIONS) if random.random() < 0.2}
        says[node] = SILENT if random.random() < 0.3 else NodeView(has, NOW)
    return look(held, nodes=NODES, says=says, partitions=PARTITIONS)


def first(facts: Facts, partition: int, counts: Counter[str]) -> str | None:
    """The rule, one partition and node at a time."""

    def rank(node: str) -> tuple[bool, bool, int, int]:
        view = facts.node(node)
        has = isinstance(view, NodeView) and partition in view.partitions
        return not has, isinstance(view, Unknown), counts[node], NODES.index(node)

    free = [node for node in NODES if node not in facts.holders(partition)]
    return min(free, key=rank, default=None)


@pytest.mark.parametrize("seed", range(40))
def test_each_copy_goes_to_the_first_node_by_the_rule(seed: int) -> None:
    random = Random(seed)
    facts = found(random)
    targets = Targets(facts, NODES)
    counts = Counter({node: sum(node in facts.holders(p) for p in range(PARTITIONS)) for node in NODES})
    for _ in range(4 * PARTITIONS):
        partition = random.randrange(PARTITIONS)
        node = targets.pick(partition)
        assert node == first(facts, partition, counts)
        assert targets.pick(partition) == node, "to ask changes nothing"
        if node is not None and random.random() < 0.7:
            targets.take(node)
            counts[node] += 1


@pytest.mark.parametrize("held", [{}, {"b0": tuple(range(0, 200, 3)), "a1": (5, 7)}])
def test_seeding_leaves_every_group_even(held: dict[str, tuple[int, ...]]) -> None:
    nodes = (*NODES, "b0", "b1", "b2")
    says = {node: NodeView({}, NOW) for node in nodes}
    given = seeds(look(held, nodes=nodes, started=False, says=says, partitions=200))
    shares = {node: len(given.get(node, ())) + len(held.get(node, ())) for node in nodes}
    for group in "ab":
        of_group = [share for node, share in shares.items() if node.startswith(group)]
        assert sum(of_group) == 200
        assert max(of_group) - min(of_group) <= 1


def test_a_pass_judges_the_nodes_once_for_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of partitions on hundreds of nodes it held the event loop for longer than the Lease
    permits."""
    judged = []

    def closed(facts: Facts) -> frozenset[str]:
        judged.append(facts)
        return frozenset()

    monkeypatch.setattr(placement, "closed_to_copies", closed)
    facts = look({}, started=False, partitions=100)
    assert sum(len(held) for held in seeds(facts).values()) == 200
    assert len(judged) == 1
    judged.clear()
    assert len(list(placement.wanted(look({}, partitions=100)))) == 200
    assert len(judged) == 1
