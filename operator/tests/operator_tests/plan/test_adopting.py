"""A cluster that exists already is adopted while it is paused: whether it fits is reported, and nothing is
begun."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from operator_tests.plan import cluster
from operator_tests.plan.cluster import KEY, NODES, identity, rendered
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.desired import Memory, created_key
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide

OTHER = created_key("another-uid")


def adopting(key: UUID, *, paused: bool, recorded: UUID | None = None) -> Facts:
    """The first look: all nodes are external, there is nothing in Kubernetes yet."""
    found = cluster.facts(KubeView())
    nodes = tuple(identity(node)._replace(external=True) for node in NODES)
    wanted = replace(
        found.desired,
        nodes=nodes,
        adopt_key=key,
        paused=paused,
        by_connect={one.connect_string: one for one in nodes},
    )
    return replace(found, desired=wanted, memory=Memory(recorded))


def decided(found: Facts) -> Decision:
    return decide(found, rendered(nodes=()))


def test_while_it_is_paused_nothing_is_begun_and_the_tree_is_judged() -> None:
    for recorded in (None, KEY):
        fits = decided(adopting(KEY, paused=True, recorded=recorded))
        assert (fits.invalid, fits.actions, fits.memory.cluster_key) == (None, [], recorded)
    foreign = decided(adopting(OTHER, paused=True))
    assert foreign.invalid is not None
    assert foreign.invalid[0] is Reason.FOREIGN_TREE
    assert foreign.actions == []


def test_after_the_pause_the_key_is_recorded_then_the_servers_start() -> None:
    first = decided(adopting(KEY, paused=False))
    assert (first.actions, first.memory.cluster_key) == ([], KEY)
    second = decided(adopting(KEY, paused=False, recorded=KEY))
    assert [one.key.kind for one in second.actions if isinstance(one, ApplyObject)] == ["Deployment"]
