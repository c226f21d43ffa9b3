"""NetworkPolicies: who may connect to which port, and where pods may connect to. The ports of storage nodes
and of the managed ZooKeeper are closed; those of servers are open unless a person says more."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import LABEL_CLIENT, ZOOKEEPER_ACCESS
from waltz_operator.api.security import ClientPeer, Egress, ZooKeeperAccess
from waltz_operator.api.topology import (
    CONSOLE_PORT,
    SERVER_HTTP_PORT,
    SERVER_PORT,
    STORAGE_ADMIN_PORT,
    STORAGE_HTTP_PORT,
    STORAGE_PORT,
    ZOOKEEPER_ELECTION_PORT,
    ZOOKEEPER_PEER_PORT,
    console_name,
    host_port,
    server_name,
    storage_name,
    storage_nodes,
    zookeeper_name,
    zookeeper_port,
)
from waltz_operator.resources.common import CONSOLE, MIGRATION, SERVER, STORAGE, ZOOKEEPER, make, selector
from waltz_operator.resources.inputs import Obj, RenderInputs

OPERATOR_LABELS = {"app.kubernetes.io/name": "waltz-operator"}
LABELLED: Obj = {"namespaceSelector": {}, "podSelector": {"matchLabels": {LABEL_CLIENT: "true"}}}
_DNS: Obj = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
NAMESPACE_NAME = "kubernetes.io/metadata.name"


def network_policies(cluster: WaltzCluster, inputs: RenderInputs) -> list[Obj]:
    """One per component; none when they are switched off."""
    policy = cluster.spec.network_policy
    if not policy.enabled:
        return []
    operator = _operator(inputs)
    closed, clients = policy.clients is not None, _peers(policy.clients or ())
    metrics = _anyone_here() if policy.metrics is None else _peers(policy.metrics)
    copies, servers = _own(cluster, MIGRATION), _own(cluster, SERVER)
    console = [_own(cluster, CONSOLE)] if cluster.spec.console.enabled else []
    found = [
        _policy(
            cluster,
            STORAGE,
            storage_name(cluster),
            [
                _rule([servers, copies, operator], STORAGE_PORT),
                _rule([copies, *console, operator], STORAGE_ADMIN_PORT),
                _rule([*metrics, operator], STORAGE_HTTP_PORT),
            ],
            [_to_zookeeper(cluster)],
        ),
        _policy(
            cluster,
            SERVER,
            server_name(cluster),
            [
                _rule([*clients, *console, servers, operator] if closed else [], SERVER_PORT),
                _rule([*metrics, operator], SERVER_HTTP_PORT),
            ],
            [_to_zookeeper(cluster), *_to_storage(cluster), *_to_servers(cluster)],
        ),
    ]
    if console:
        found.append(
            _policy(
                cluster,
                CONSOLE,
                console_name(cluster),
                [_rule([*clients, operator] if closed else [], CONSOLE_PORT)],
                [_to_zookeeper(cluster), *_to_storage(cluster, admin=True), *_to_servers(cluster)],
            )
        )
    if cluster.spec.zookeeper.managed is not None:
        access = _zookeeper_access(cluster, inputs)
        open_to_all = access is ZooKeeperAccess.OPEN and not closed
        own = [_own(cluster, component) for component in (STORAGE, SERVER, ZOOKEEPER, MIGRATION)] + console
        found.append(
            _policy(
                cluster,
                ZOOKEEPER,
                zookeeper_name(cluster),
                [
                    _rule(
                        [] if open_to_all else [*own, *clients, operator, dict(LABELLED)],
                        zookeeper_port(cluster),
                    ),
                    _rule([_own(cluster, ZOOKEEPER)], ZOOKEEPER_PEER_PORT, ZOOKEEPER_ELECTION_PORT),
                ],
                [_to([_own(cluster, ZOOKEEPER)], ZOOKEEPER_PEER_PORT, ZOOKEEPER_ELECTION_PORT)],
                {ZOOKEEPER_ACCESS: access.value},
            )
        )
    return found


def _zookeeper_access(cluster: WaltzCluster, inputs: RenderInputs) -> ZooKeeperAccess:
    """Closed, unless a person says otherwise; but clients that connect to an existing cluster are not locked
    out by another version of the operator: a policy that does not say what it is was open."""
    wanted = cluster.spec.network_policy.zookeeper
    if wanted is not None:
        return wanted
    live = inputs.live.get(("NetworkPolicy", zookeeper_name(cluster)))
    if live is None:
        return ZooKeeperAccess.CLOSED
    said = ((live.get("metadata") or {}).get("annotations") or {}).get(ZOOKEEPER_ACCESS)
    return ZooKeeperAccess.CLOSED if said == ZooKeeperAccess.CLOSED.value else ZooKeeperAccess.OPEN


def _policy(
    cluster: WaltzCluster,
    component: str,
    name: str,
    ingress: list[Obj],
    egress: list[Obj],
    annotations: Mapping[str, str] | None = None,
) -> Obj:
    spec: Obj = {
        "podSelector": {"matchLabels": selector(cluster, component)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    if cluster.spec.network_policy.egress is Egress.CLOSED:
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": [dict(_DNS), *egress]}
    body = {"spec": spec}
    return make(
        cluster, "networking.k8s.io/v1", "NetworkPolicy", name, component, body, annotations=annotations
    )


def _rule(peers: list[Obj], *ports: int) -> Obj:
    """Without peers everybody may."""
    allowed: Obj = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    return {"from": peers, **allowed} if peers else allowed


def _to(peers: list[Obj], *ports: int) -> Obj:
    """Without peers everywhere."""
    allowed: Obj = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    return {"to": peers, **allowed} if peers else allowed


def _to_zookeeper(cluster: WaltzCluster) -> Obj:
    """Of an ensemble of one's own the addresses are not known here, but its ports."""
    outside = cluster.spec.zookeeper.connect_string
    if outside is None:
        return _to([_own(cluster, ZOOKEEPER)], zookeeper_port(cluster))
    return _to([], *sorted({int(entry.rpartition(":")[2]) for entry in outside.split(",")}))


def _to_storage(cluster: WaltzCluster, *, admin: bool = False) -> list[Obj]:
    """To the storage ports, or to the admin ports."""
    outside = {
        node.admin_port if admin else int(node.connect_string.rpartition(":")[2])
        for node in storage_nodes(cluster)
        if node.external
    }
    own = _to([_own(cluster, STORAGE)], STORAGE_ADMIN_PORT if admin else STORAGE_PORT)
    return [own, _to([], *sorted(outside))] if outside else [own]


def _to_servers(cluster: WaltzCluster) -> list[Obj]:
    """To their port, and to that of their machines, whose addresses are not known here."""
    own, on_machine = _to([_own(cluster, SERVER)], SERVER_PORT), host_port(cluster)
    return [own] if on_machine is None else [own, _to([], on_machine)]


def _own(cluster: WaltzCluster, component: str) -> Obj:
    return {"podSelector": {"matchLabels": selector(cluster, component)}}


def _operator(inputs: RenderInputs) -> Obj:
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: inputs.operator_namespace}},
        "podSelector": {"matchLabels": dict(OPERATOR_LABELS)},
    }


def _anyone_here() -> list[Obj]:
    return [{"namespaceSelector": {}}]


def _peers(named: tuple[ClientPeer, ...]) -> list[Obj]:
    peers: list[Obj] = []
    for peer in named:
        entry: Obj = {}
        if peer.namespace_selector is not None:
            entry["namespaceSelector"] = dict(peer.namespace_selector)
        if peer.pod_selector is not None or not entry:
            entry["podSelector"] = dict(peer.pod_selector or {})
        peers.append(entry)
    return peers
