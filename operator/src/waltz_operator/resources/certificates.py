"""Certificates that cert-manager issues, one per role, into the Secrets that the pods mount."""

from __future__ import annotations

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.security import TlsMode
from waltz_operator.api.topology import TlsRole, tls_roles
from waltz_operator.resources.common import labels, make
from waltz_operator.resources.inputs import Obj

TLS = "tls"


def cert_manager_certificates(cluster: WaltzCluster) -> list[Obj]:
    """One Certificate per role; nothing in the other modes."""
    if cluster.spec.tls.mode is not TlsMode.CERT_MANAGER:
        return []
    return [_certificate(cluster, role) for role in tls_roles(cluster)]


def _certificate(cluster: WaltzCluster, role: TlsRole) -> Obj:
    tls = cluster.spec.tls
    issuer = tls.issuer_ref
    hours = tls.certificate_lifetime_hours
    spec: Obj = {
        "secretName": role.secret,
        "secretTemplate": {
            "labels": labels(cluster, TLS)
        },  # the cluster's own, also under another mode of TLS
        "commonName": role.common_name,
        "dnsNames": list(role.dns_names),
        "duration": f"{hours}h",
        "renewBefore": f"{hours * 60 // 3}m",
        "privateKey": {"algorithm": "RSA", "size": 2048, "rotationPolicy": "Always"},
        "usages": ["digital signature", "key encipherment", "server auth", "client auth"],
        "issuerRef": {
            "name": issuer.name if issuer else "",
            "kind": issuer.kind if issuer else "Issuer",
            "group": issuer.group if issuer else "cert-manager.io",
        },
    }
    if role.combined:
        spec["additionalOutputFormats"] = [{"type": "CombinedPEM"}]
    if role.addresses:
        spec["ipAddresses"] = list(role.addresses)
    return make(cluster, "cert-manager.io/v1", "Certificate", role.secret, TLS, {"spec": spec})
