"""TLS, network policy and monitoring of a cluster."""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from waltz_operator.api.admission import (
    AUTHORITY_LIFETIME,
    EXTRA_NAMES,
    MAX_DNS_NAME,
    MAX_PEER_NAME,
    PEER_NAMES,
    PEERS_NEED_CERTIFICATES,
    PEERS_NEED_TLS,
    PEERS_OF_SECRETS,
    TLS_ISSUER,
    TLS_SECRETS,
)
from waltz_operator.api.base import LIST_SET, FreeForm, Labels, Model, ResourceName, immutable, rules

HOUR = 3600


def shortest_address(name: str) -> str | None:
    """An IP address as a certificate shows it, however it is written; None for what is not one, or has a
    zone, which no certificate can have."""
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return None
    return str(found) if getattr(found, "scope_id", None) is None else None


class TlsMode(StrEnum):
    """Where certificates come from."""

    SELF_SIGNED = "SelfSigned"
    CERT_MANAGER = "CertManager"
    SECRET = "Secret"
    DISABLED = "Disabled"


class ClientAuthentication(StrEnum):
    """Whether clients must show a certificate."""

    REQUIRED = "Required"
    NONE = "None"


class IssuerReference(Model):
    """An issuer of cert-manager."""

    name: ResourceName = Field(description="Name of the issuer.")
    kind: str = Field(default="Issuer", description="Issuer or ClusterIssuer.", min_length=1, max_length=63)
    group: str = Field(
        default="cert-manager.io", description="API group of the issuer.", min_length=1, max_length=253
    )


class TlsSecrets(Model):
    """Secrets with tls.crt, tls.key and ca.crt, one per role; one Secret may serve all."""

    server: ResourceName = Field(description="Secret of the servers; covers the names of status.endpoints.")
    storage: ResourceName = Field(description="Secret of the storage nodes; covers the names of their pods.")
    operator: ResourceName = Field(
        description="Secret that the operator, copy jobs and tools connect with; a certificate for clients."
    )
    zookeeper: ResourceName | None = Field(
        default=None,
        description="Secret of the managed ZooKeeper, with zookeeper.managed.tls; covers the names of its pods, and has key and "
        "certificate in one file besides, tls-combined.pem. Default: none.",
    )
    console: ResourceName | None = Field(
        default=None,
        description="Secret of the console: it serves HTTPS with it, and connects to servers, storage nodes and ZooKeeper. "
        "Default: none.",
    )


PeerNames = Annotated[
    tuple[Annotated[str, Field(max_length=MAX_PEER_NAME)], ...],
    Field(max_length=256, json_schema_extra=LIST_SET | rules(PEER_NAMES)),
]


class AllowedPeers(Model):
    """Names of certificates (common name or alternative name) that may connect to a port."""

    server: PeerNames | None = Field(
        default=None,
        description="To the port for clients, besides the servers, which watch each other, and the operator, which always may "
        "when the operator or cert-manager issues certificates; with mode Secret name both. Default: everyone whose certificate "
        "the authority has signed.",
    )
    storage: PeerNames | None = Field(
        default=None,
        description="To the storage port, besides the servers and the operator, which always may when the operator or cert-manager "
        "issues certificates; with mode Secret name both. Default: nobody else; with mode Secret everyone whose certificate the authority has signed.",
    )
    admin: PeerNames | None = Field(
        default=None,
        description="To the admin port of storage nodes, besides the operator, which always may when it or cert-manager issues "
        "certificates; with mode Secret name it. Default: nobody else; with mode Secret everyone whose certificate the authority has signed.",
    )


class Tls(Model):
    """Encryption and certificates."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            TLS_SECRETS,
            TLS_ISSUER,
            PEERS_NEED_TLS,
            PEERS_NEED_CERTIFICATES,
            PEERS_OF_SECRETS,
            AUTHORITY_LIFETIME,
        )
    }

    mode: TlsMode = Field(
        default=TlsMode.SELF_SIGNED,
        description="SelfSigned = the operator makes an authority and certificates and renews them; CertManager = cert-manager "
        "issues them; Secret = yours; Disabled = plaintext. Fixed when the cluster is created: nobody would understand anybody while it "
        "changed.",
        json_schema_extra=immutable("the mode of TLS"),
    )
    secrets: TlsSecrets | None = Field(
        default=None, description="Your Secrets, with mode Secret. Default: none."
    )
    issuer_ref: IssuerReference | None = Field(
        default=None, description="The issuer of cert-manager, with mode CertManager. Default: none."
    )
    client_authentication: ClientAuthentication = Field(
        default=ClientAuthentication.REQUIRED,
        description="Whether clients of the servers must show a certificate that the authority has signed. Storage nodes always "
        "ask for one. With None servers do not watch each other, and hand over no locks: a crash is noticed when the session in "
        "ZooKeeper ends.",
    )
    allowed_peers: AllowedPeers = Field(
        default_factory=AllowedPeers, description="Whose certificates may connect to which port."
    )
    extra_names: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_DNS_NAME)], ...],
        Field(json_schema_extra=LIST_SET | rules(EXTRA_NAMES)),
    ] = Field(
        default=(),
        description="Further DNS names (in ASCII) or IP addresses in the certificates of the servers.",
        max_length=64,
    )
    certificate_lifetime_hours: int = Field(
        default=24 * 90,
        description="Lifetime of the certificates of roles, in hours; renewed when two thirds have passed. With modes "
        "SelfSigned and CertManager.",
        ge=1,
        le=24 * 3650,
    )
    authority_lifetime_hours: int = Field(
        default=24 * 3650,
        description="Lifetime of the authority's certificate, in hours; renewed when two thirds have passed. With mode "
        "SelfSigned.",
        ge=2,
        le=24 * 36500,
    )


class ClientPeer(Model):
    """Pods that may connect."""

    namespace_selector: FreeForm | None = Field(
        default=None,
        description="Kubernetes label selector of namespaces. Default: the namespace of the cluster.",
    )
    pod_selector: FreeForm | None = Field(
        default=None, description="Kubernetes label selector of pods. Default: all pods of those namespaces."
    )


class ZooKeeperAccess(StrEnum):
    """Who may connect to the managed ZooKeeper."""

    CLOSED = "Closed"
    OPEN = "Open"


class Egress(StrEnum):
    """What the cluster's pods may connect to."""

    OPEN = "Open"
    CLOSED = "Closed"


class NetworkPolicy(Model):
    """NetworkPolicies: storage and admin ports for servers and the operator only, metrics and client ports as
    said here."""

    enabled: bool = Field(default=True, description="Whether NetworkPolicies are made.")
    clients: tuple[ClientPeer, ...] | None = Field(
        default=None,
        description="Who may connect to the servers, and to the managed ZooKeeper besides those of zookeeper; an empty list = "
        "only the cluster's own pods and the operator. Addresses of machines, from which an external listener of address HostIP "
        "is reached, need a NetworkPolicy of your own. Default: every pod and every address, to the servers.",
        max_length=32,
    )
    zookeeper: ZooKeeperAccess | None = Field(
        default=None,
        description="Who may connect to the managed ZooKeeper: Closed = the cluster's own pods, the operator, pods of any "
        "namespace with the label waltz.dev/client=true, and those of clients; Open = every pod and every address unless "
        "clients is set. Default: Closed; Open for a cluster that an operator made which did not have this field.",
    )
    egress: Egress = Field(
        default=Egress.OPEN,
        description="What storage nodes, servers, the console and the managed ZooKeeper may connect to: Open = everything; "
        "Closed = DNS, and those parts of the cluster that each one needs, of servers with an external listener of address "
        "HostIP its hostPort at any address. A NetworkPolicy of your own adds to it, for a sidecar. Copy jobs may connect to everything.",
    )
    metrics: tuple[ClientPeer, ...] | None = Field(
        default=None,
        description="Who may connect to the HTTP ports; an empty list = only the operator. Default: every pod of every "
        "namespace.",
        max_length=32,
    )


class Monitor(StrEnum):
    """Kinds of objects by which the Prometheus operator knows what to scrape."""

    NONE = "None"
    POD_MONITOR = "PodMonitor"
    SERVICE_MONITOR = "ServiceMonitor"


class Monitoring(Model):
    """Objects for the Prometheus operator; the annotations prometheus.io/* are always there."""

    monitor: Monitor = Field(
        default=Monitor.NONE,
        description="What is made: a PodMonitor, a ServiceMonitor, or nothing. Its definition must be installed in the cluster.",
    )
    interval_seconds: int = Field(
        default=30, description="Time between two scrapes, in seconds.", ge=1, le=3600
    )
    labels: Labels = Field(
        default_factory=dict, description="Labels of the monitor, by which your Prometheus finds it."
    )
