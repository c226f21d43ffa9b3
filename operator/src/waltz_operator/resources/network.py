"""NetworkPolicies: who may connect to which port. Only the storage and admin ports are closed unless a person
says more."""

from __future__ import annotations

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.security import ClientPeer
from waltz_operator.api.topology import (
    SERVER_HTTP_PORT,
    SERVER_PORT,
    STORAGE_ADMIN_PORT,
    STORAGE_HTTP_PORT,
    STORAGE_PORT,
    ZOOKEEPER_ELECTION_PORT,
    ZOOKEEPER_PEER_PORT,
    ZOOKEEPER_PORT,
    server_name,
    storage_name,
    zookeeper_name,
)
from waltz_operator.resources.common import MIGRATION, SERVER, STORAGE, ZOOKEEPER, make, selector
from waltz_operator.resources.inputs import Obj, RenderInputs

OPERATOR_LABELS = {"app.kubernetes.io/name": "waltz-operator"}
NAMESPACE_NAME = "kubernetes.io/metadata.name"


def network_policies(cluster: WaltzCluster, inputs: RenderInputs) -> list[Obj]:
    """One per component; none when they are switched off."""
    policy = cluster.spec.network_policy
    if not policy.enabled:
        return []
    operator = _operator(inputs)
    clients, metrics = _peers(policy.clients), _peers(policy.metrics) or _anyone_here()
    copies, servers = _own(cluster, MIGRATION), _own(cluster, SERVER)
    found = [
        _policy(
            cluster,
            STORAGE,
            storage_name(cluster),
            [
                _rule([servers, copies, operator], STORAGE_PORT),
                _rule([copies, operator], STORAGE_ADMIN_PORT),
                _rule([*metrics, operator], STORAGE_HTTP_PORT),
            ],
        ),
        _policy(
            cluster,
            SERVER,
            server_name(cluster),
            [
                _rule([*clients, operator] if clients else [], SERVER_PORT),
                _rule([*metrics, operator], SERVER_HTTP_PORT),
            ],
        ),
    ]
    if cluster.spec.zookeeper.managed is not None:
        own = [_own(cluster, component) for component in (STORAGE, SERVER, ZOOKEEPER, MIGRATION)]
        found.append(
            _policy(
                cluster,
                ZOOKEEPER,
                zookeeper_name(cluster),
                [
                    _rule([*own, *clients, operator] if clients else [], ZOOKEEPER_PORT),
                    _rule([_own(cluster, ZOOKEEPER)], ZOOKEEPER_PEER_PORT, ZOOKEEPER_ELECTION_PORT),
                ],
            )
        )
    return found


def _policy(cluster: WaltzCluster, component: str, name: str, ingress: list[Obj]) -> Obj:
    spec = {
        "podSelector": {"matchLabels": selector(cluster, component)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    return make(cluster, "networking.k8s.io/v1", "NetworkPolicy", name, component, {"spec": spec})


def _rule(peers: list[Obj], *ports: int) -> Obj:
    """Without peers everybody may."""
    allowed: Obj = {"ports": [{"port": port, "protocol": "TCP"} for port in ports]}
    return {"from": peers, **allowed} if peers else allowed


def _own(cluster: WaltzCluster, component: str) -> Obj:
    return {"podSelector": {"matchLabels": selector(cluster, component)}}


def _operator(inputs: RenderInputs) -> Obj:
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: inputs.operator_namespace}},
        "podSelector": {"matchLabels": dict(OPERATOR_LABELS)},
    }


def _anyone_here() -> list[Obj]:
    return [{"namespaceSelector": {}}]


def _peers(named: tuple[ClientPeer, ...] | None) -> list[Obj]:
    peers: list[Obj] = []
    for peer in named or ():
        entry: Obj = {}
        if peer.namespace_selector is not None:
            entry["namespaceSelector"] = dict(peer.namespace_selector)
        if peer.pod_selector is not None or not entry:
            entry["podSelector"] = dict(peer.pod_selector or {})
        peers.append(entry)
    return peers
