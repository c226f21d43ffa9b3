"""An external node that the specification no longer has is known by the last status alone, so that is kept
until ZooKeeper disproves it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from operator_tests.resources.clusters import EXTERNAL, UID, VARIANTS, cluster
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_cluster.replica_rules import NeverStarted
from waltz_operator.api.cluster_status import NodeStatus, WaltzClusterStatus
from waltz_operator.model.actions import RegisterNode
from waltz_operator.model.facts import facts_of
from waltz_operator.model.snapshot import (
    KubeView,
    Snapshot,
    TreeView,
    Unknown,
)
from waltz_operator.plan.cluster import plan
from waltz_operator.plan.preconditions import still_so
from waltz_operator.plan.safety_gates import Allowed, Denied

WANTED = ["s0.example.com:5280", "s1.example.com:5280", "s2.example.com:5280"]
OLD = "s9.example.com:5280"


def tree(*nodes: str, ports: tuple[str, ...] = ()) -> TreeView:
    groups = {node: number for number, node in enumerate(nodes)}
    held: dict[str, tuple[int, ...]] = dict.fromkeys(nodes, ())
    listed = dict.fromkeys((*nodes, *ports), 5281)
    key = facts_of(look(Unknown("x"))).desired.expected_key
    return TreeView("ledger", key, 8, groups, held, listed, (0, 0, 0), {p: NeverStarted() for p in range(8)})


def look(found: TreeView | NoTree | BrokenTree | Unknown, kube: KubeView | Unknown | None = None) -> Snapshot:
    """The node 2-9 was taken out of the specification; the last status has it."""
    made = cluster({**VARIANTS["adopted"], "storage": {"groups": EXTERNAL}})
    nodes = tuple(NodeStatus(name=f"{n}-0", connect_string=node) for n, node in enumerate(WANTED))
    last = WaltzClusterStatus(cluster_key=UID, nodes=(*nodes, NodeStatus(name="2-9", connect_string=OLD)))
    return Snapshot(made._replace(status=last), kube or KubeView(), found, {}, {}, 1000.0)


def remembered(found: Snapshot) -> list[str]:
    status = plan(found).status
    assert isinstance(status, WaltzClusterStatus)
    return [one.connect_string for one in status.nodes]


@pytest.mark.parametrize(
    "found",
    [
        Unknown("no connection"),
        NoTree(),
        BrokenTree("half"),
        replace(tree(*WANTED), cluster_key=UUID(int=1)),
        tree(*WANTED, OLD),
        tree(*WANTED, ports=(OLD,)),
    ],
    ids=["unknown", "missing", "broken", "of another cluster", "registered", "half registered"],
)
@pytest.mark.parametrize("kube", [KubeView(), Unknown("no answer")], ids=["kubernetes", "no kubernetes"])
def test_it_is_kept_until_it_is_proven_to_be_unregistered(
    found: TreeView | NoTree | BrokenTree | Unknown, kube: KubeView | Unknown
) -> None:
    assert remembered(look(found, kube)) == [*WANTED, OLD]
    (left,) = facts_of(look(found, kube)).leaving
    assert (left.reference, left.connect_string, left.external) == ("2-9", OLD, True)


def test_it_is_forgotten_when_zookeeper_does_not_have_it() -> None:
    assert remembered(look(tree(*WANTED))) == WANTED


def test_a_late_pass_does_not_register_it_again() -> None:
    """Registered without a pod it could never prove that it is empty, and would stay forever."""
    found = facts_of(look(tree(*WANTED)))
    assert RegisterNode.destructive
    assert isinstance(still_so(found, RegisterNode(OLD, 5281, 2)), Denied)
    assert isinstance(still_so(found, RegisterNode(WANTED[2], 5281, 2)), Allowed)


def test_its_drain_goes_on_after_a_pass_without_zookeeper() -> None:
    first = look(Unknown("no connection"))
    status = plan(first).status
    assert isinstance(status, WaltzClusterStatus)
    second = replace(look(tree(*WANTED, OLD)), cluster=first.cluster._replace(status=status))
    assert [one.connect_string for one in facts_of(second).leaving] == [OLD]
