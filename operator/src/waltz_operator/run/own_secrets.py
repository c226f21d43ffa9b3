"""The Secrets that the operator made for a cluster. Those that its data need stay where its volumes do: the
credentials for a managed ZooKeeper, and the copies of its records."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.security import TlsMode
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.model.ownership import belongs
from waltz_operator.model.snapshot import SecretView
from waltz_operator.run.read_kubernetes import secret


async def own_secrets(kube: Kube, cluster: WaltzCluster) -> Mapping[str, SecretView]:
    """By name, where they are this cluster's, whatever its specification says by now; those that its data do
    not need only of a cluster that is being deleted. Errors of the API server pass."""
    found: dict[str, SecretView] = {}
    data = (topology.zookeeper_secret(cluster), topology.export_secret(cluster))
    for name in (*data, *(_others(cluster) if cluster.metadata.deleting else ())):
        try:
            body = await kube.get(kinds.SECRET, cluster.metadata.namespace, name)
        except KubeNotFoundError:
            continue
        if belongs(body, cluster.metadata):
            found[name] = secret(body)._replace(data=name in data)
    return found


def _others(cluster: WaltzCluster) -> tuple[str, ...]:
    """Certificates of cert-manager, or of a person, are theirs."""
    certificates: tuple[str, ...] = ()
    if cluster.spec.tls.mode is TlsMode.SELF_SIGNED:
        roles = (role.secret for role in topology.tls_roles(cluster))
        certificates = (topology.authority_secret(cluster), *roles)
    return (*certificates, topology.console_secret(cluster))
