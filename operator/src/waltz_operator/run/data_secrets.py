"""The Secrets that stay where the volumes of a deleted cluster do: the credentials that the operator made for
a managed ZooKeeper, and the copies of its records."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.model.ownership import belongs
from waltz_operator.model.snapshot import SecretView
from waltz_operator.run.read_kubernetes import secret


async def data_secrets(kube: Kube, cluster: WaltzCluster) -> Mapping[str, SecretView]:
    """By name, where they are this cluster's, whatever its specification says by now. Errors of the API
    server pass."""
    found: dict[str, SecretView] = {}
    for name in (topology.zookeeper_secret(cluster), topology.export_secret(cluster)):
        try:
            body = await kube.get(kinds.SECRET, cluster.metadata.namespace, name)
        except KubeNotFoundError:
            continue
        if belongs(body, cluster.metadata):
            found[name] = secret(body)
    return found
