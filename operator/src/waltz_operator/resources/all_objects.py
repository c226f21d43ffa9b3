"""All objects of a cluster, in the order in which they are applied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.topology import groups, storage_nodes, zookeeper_claims
from waltz_operator.api.validate import Problem
from waltz_operator.resources.addresses import server_slices
from waltz_operator.resources.certificates import cert_manager_certificates
from waltz_operator.resources.claims import impossible_claim
from waltz_operator.resources.console import console_objects
from waltz_operator.resources.inputs import RenderInputs
from waltz_operator.resources.monitoring import monitors
from waltz_operator.resources.network import network_policies
from waltz_operator.resources.server import server_objects
from waltz_operator.resources.storage import storage_objects, wanted_volumes
from waltz_operator.resources.zookeeper import zookeeper_objects


def desired_objects(cluster: WaltzCluster, inputs: RenderInputs) -> tuple[Mapping[str, Any], ...]:
    """For server-side apply: policies and certificates first, then ZooKeeper, storage nodes, servers,
    the console, monitors.

    The specification must be a valid one (`waltz_operator.api.validate`). Nodes that have left it are not
    here.
    """
    objects = (
        *network_policies(cluster, inputs),
        *cert_manager_certificates(cluster),
        *zookeeper_objects(cluster, inputs),
        *storage_objects(cluster, inputs),
        *server_objects(cluster, inputs),
        *console_objects(cluster, inputs),
        *monitors(cluster),
    )
    return tuple(json.loads(json.dumps(made)) for made in objects)  # nothing shared between two places


def optional_kinds(cluster: WaltzCluster, inputs: RenderInputs) -> set[str]:
    """Those of the kinds of the desired objects that need not be there: see `kube.kinds.OPTIONAL`."""
    made = (*cert_manager_certificates(cluster), *monitors(cluster), *server_slices(cluster, inputs, []))
    return {str(one["kind"]) for one in made}


def impossible_changes(cluster: WaltzCluster, inputs: RenderInputs) -> list[Problem]:
    """What the specification wants of volumes that exist and cannot be done; everything else of it is."""
    by_name = {group.name: group for group in groups(cluster)}
    found: list[Problem] = []
    for node in storage_nodes(cluster):
        if not node.external:
            group = by_name[node.group]
            for name, (path, size, class_name) in wanted_volumes(cluster, group, node).items():
                found += impossible_claim(inputs, path, name, size, class_name)
    managed = cluster.spec.zookeeper.managed
    if managed is not None:
        for name in zookeeper_claims(cluster, inputs.zookeeper_members):
            found += impossible_claim(
                inputs, "spec.zookeeper.managed", name, managed.size, managed.storage_class_name
            )
    return found
