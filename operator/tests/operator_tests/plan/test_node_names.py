"""No two nodes have the same name in the status: the API server refuses such a status, and all later ones."""

from __future__ import annotations

import pytest

from operator_tests.plan.test_leaving import WANTED, tree
from operator_tests.resources.clusters import EXTERNAL, UID, VARIANTS, Spec, cluster
from waltz_operator.api.cluster_status import NodeStatus, WaltzClusterStatus
from waltz_operator.api.topology import storage_nodes
from waltz_operator.model.snapshot import KubeView, Snapshot
from waltz_operator.plan.cluster import plan

PODS: list[Spec] = [*EXTERNAL[:2], {"name": "2", "count": 1}]


def shown(groups: list[Spec], before: WaltzClusterStatus, *registered: str) -> WaltzClusterStatus:
    """The status after a pass with these groups."""
    made = cluster({**VARIANTS["adopted"], "storage": {"groups": groups}})
    made = made._replace(status=before)
    found = plan(Snapshot(made, KubeView(), tree(*registered), {}, {}, 1000.0)).status
    assert isinstance(found, WaltzClusterStatus)
    return found


def names(status: WaltzClusterStatus) -> dict[str, str]:
    """Name of each node by its connect string."""
    assert len({one.name for one in status.nodes}) == len(status.nodes), status.nodes
    return {one.connect_string: one.name for one in status.nodes}


def recorded(groups: list[Spec]) -> WaltzClusterStatus:
    made = cluster({**VARIANTS["adopted"], "storage": {"groups": groups}})
    nodes = tuple(
        NodeStatus(name=one.reference, connect_string=one.connect_string) for one in storage_nodes(made)
    )
    return WaltzClusterStatus(cluster_key=UID, nodes=nodes)


@pytest.mark.parametrize("adopted_first", [True, False])
def test_an_external_node_and_a_pod_of_one_name(adopted_first: bool) -> None:
    """The pod is known by its name, in each pass; the external one by its connect string."""
    old, new = (EXTERNAL, PODS) if adopted_first else (PODS, EXTERNAL)
    pod = storage_nodes(cluster({**VARIANTS["adopted"], "storage": {"groups": PODS}}))[-1].connect_string
    external = WANTED[2]
    registered = (*WANTED[:2], external if adopted_first else pod)
    before = recorded(old)
    for _ in range(3):
        before = shown(new, before, *registered)
        found = names(before)
        assert (found[pod], found[external]) == ("2-0", "2-0-external")
        pods = {one.connect_string: one.pod for one in before.nodes}
        assert pods[pod] is not None
        assert pods[external] is None


def test_two_external_nodes_that_had_one_name() -> None:
    """Taken out, and given to another host while the old one is still registered."""
    node = {"name": "0", "external": True, "connectString": "other.example.com:5280", "adminPort": 5281}
    before = recorded(EXTERNAL)
    for _ in range(3):
        before = shown([*EXTERNAL[:2], {"name": "2", "nodes": [node]}], before, *WANTED)
        found = names(before)
        assert (found["other.example.com:5280"], found[WANTED[2]]) == ("2-0", "2-0-external")


def test_a_node_that_has_gone_leaves_its_name() -> None:
    before = shown(PODS, recorded(EXTERNAL), *WANTED)
    after = shown(PODS, before, *WANTED[:2])
    assert "2-0-external" not in names(after).values()
