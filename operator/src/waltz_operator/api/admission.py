"""What the API server refuses when an object is applied: CEL rules of the definitions, each with a sentence.

`validate.py` has the same rules in Python, with the same sentences: for files that `waltz k8s render` reads,
and for objects that were stored before a rule existed. A table of good and bad specifications
(`operator/tests/operator_tests/api/admission_table.py`) holds both to the same answers on a real API server.

A rule is at the lowest field that it needs: the API server then lets a stored object that breaks it be
changed elsewhere (ADR 25). Bounds of lists and texts are part of the rules, for the API server computes from
them what a rule costs at most. Rules of changes (`oldSelf`) are with their models. Pure.
"""

from __future__ import annotations

from typing import Any

from waltz_operator.api.base import ratcheted, rule, rules

Rule = dict[str, str]
MAX_PEER_NAME = 1024
MAX_DNS_NAME = 253
MAX_POD_ENTRIES = 256
"""Containers, volumes, tolerations and the like of one pod template."""

EITHER_COPIES = rule(
    "!(has(self.replicas) && has(self.storage) && has(self.storage.groups))",
    "give replicas (that many groups with one node each) or storage.groups, not both",
    "replicas",
)
IMAGES = rule(
    "has(self.version) || has(self.images) && has(self.images.server) && has(self.images.storage) && "
    "(!has(self.zookeeper.managed) || has(self.images.zookeeper))",
    "give version, or images.server, images.storage and, for a managed ZooKeeper, images.zookeeper",
    "images",
)

EITHER_ZOOKEEPER = rule(
    "has(self.connectString) != has(self.managed)",
    "give connectString or managed, exactly one of them",
)
ONE_AUTHENTICATION = rule(
    "!(has(self.auth) && has(self.managed) && has(self.managed.authentication) && "
    "self.managed.authentication != 'None')",
    "managed.authentication makes credentials of its own: give it or auth, not both",
    "auth",
)
ZOOKEEPER_TLS = rule(
    "!has(self.zookeeper) || !has(self.zookeeper.managed) || !has(self.zookeeper.managed.tls) || "
    "self.zookeeper.managed.tls != 'Enabled' || !has(self.tls) || !has(self.tls.mode) || self.tls.mode != 'Disabled'",
    "TLS of the managed ZooKeeper needs certificates: tls.mode must not be Disabled",
    "zookeeper",
)
ZOOKEEPER_SECRET = rule(
    "!has(self.zookeeper) || !has(self.zookeeper.managed) || !has(self.zookeeper.managed.tls) || "
    "self.zookeeper.managed.tls != 'Enabled' || !has(self.tls) || !has(self.tls.secrets) || has(self.tls.secrets.zookeeper)",
    "TLS of the managed ZooKeeper with your Secrets needs one more: tls.secrets.zookeeper",
    "zookeeper",
)
ROOT = rule(
    r"!self.matches('(^|/)[.][.]?(/|$)')",
    ". and .. cannot be parts of a path in ZooKeeper",
)
PORTS = rule(
    # 0, and five digits above 65535: a list of addresses is searched once, and no number is made of a text
    r"!self.matches(':0+(,|$)|:(6553[6-9]|655[4-9][0-9]|65[6-9][0-9]{2}|6[6-9][0-9]{3}|[7-9][0-9]{4})(,|$)')",
    "a port is a number from 1 to 65535",
)

GROUP_IDS = rule(
    "self.all(g, !has(g.id) || self.exists_one(other, has(other.id) && other.id == g.id))",
    "two groups have the same id",
)
CONNECT_STRINGS = rule(
    "self.all(n, !has(n.connectString) || self.exists_one(m, has(m.connectString) && m.connectString == "
    "n.connectString))",
    "two nodes have the same connect string",
)
"""Within a group. Between nodes of two groups only the operator finds it: to compare them all would cost four
times what the API server allows."""
COUNT_OR_NODES = rule("!(has(self.count) && has(self.nodes))", "give count or nodes, not both", "count")
EXTERNAL = rule(
    "self.external ? has(self.connectString) && has(self.adminPort) : "
    "!has(self.connectString) && !has(self.adminPort)",
    "connectString and adminPort belong to a node with external: true, which needs both",
)
ADMIN_PORT = rule(
    "!has(self.connectString) || !has(self.adminPort) || "
    "int(self.connectString.substring(self.connectString.lastIndexOf(':') + 1)) != self.adminPort",
    "must differ from the storage port",
    "adminPort",
)

TLS_SECRETS = rule(
    "(has(self.mode) && self.mode == 'Secret') == has(self.secrets)",
    "goes with mode Secret, which needs it",
    "secrets",
)
TLS_ISSUER = rule(
    "(has(self.mode) && self.mode == 'CertManager') == has(self.issuerRef)",
    "goes with mode CertManager, which needs it",
    "issuerRef",
)
PEERS_NEED_TLS = rule(
    "!(has(self.mode) && self.mode == 'Disabled' && has(self.allowedPeers) && (has(self.allowedPeers.server) || "
    "has(self.allowedPeers.storage) || has(self.allowedPeers.admin)))",
    "needs TLS: without it a peer has no name",
    "allowedPeers",
)
PEERS_NEED_CERTIFICATES = rule(
    "!(has(self.allowedPeers) && has(self.allowedPeers.server) && has(self.clientAuthentication) && "
    "self.clientAuthentication == 'None' && !(has(self.mode) && self.mode == 'Disabled'))",
    "needs clientAuthentication: Required",
    "allowedPeers.server",
)
PEERS_OF_SECRETS = rule(
    "!(has(self.mode) && self.mode == 'Secret' && has(self.allowedPeers) && ("
    "has(self.allowedPeers.server) && self.allowedPeers.server.size() == 0 || "
    "has(self.allowedPeers.storage) && self.allowedPeers.storage.size() == 0 || "
    "has(self.allowedPeers.admin) && self.allowedPeers.admin.size() == 0))",
    "an empty list with mode Secret is nobody, not even the cluster itself: name its certificates as well, or "
    "leave the list out, which lets everybody in whose certificate the authority has signed",
    "allowedPeers",
)
PEER_NAMES = rule(r"self.all(name, name.matches('[^\\s]'))", "a name is empty")
EXTRA_NAME = "[-a-zA-Z0-9_.*]+|[0-9a-fA-F:.]+"
"""Which of those with colons are addresses only the operator finds out."""
EXTRA_NAMES = rule(
    f"self.all(name, name.matches('^({EXTRA_NAME})$'))",
    "every entry must be a DNS name in ASCII (of an international one the form with xn--) or an IP address "
    "without a zone",
)
_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DOMAIN_NAME = f"{_LABEL}([.]{_LABEL})*"
DOMAIN = rule(
    f"self.matches('^{DOMAIN_NAME}$')",
    "must be a DNS domain: labels of 1 to 63 lower-case letters, digits and hyphens, with single dots between "
    "them",
)
ADDRESS = "^([0-9]{1,3}[.]){3}[0-9]{1,3}$|:"
"""An IP address among the names of a certificate."""
BARE_ADDRESS = ratcheted(
    "!has(self.servers) || !has(self.servers.externalListener) || has(self.servers.externalListener.domain) || "
    "has(self.tls) && has(self.tls.mode) && self.tls.mode in ['Disabled', 'Secret'] || "
    "self.servers.externalListener.address == 'HostIP' && has(self.tls) && has(self.tls.extraNames) && "
    f"self.tls.extraNames.exists(name, name.matches('{ADDRESS}'))",
    "has(oldSelf.value().servers) && has(oldSelf.value().servers.externalListener) && "
    "self.servers.externalListener == oldSelf.value().servers.externalListener && "
    "(has(self.tls) && has(self.tls.extraNames) ? has(oldSelf.value().tls) && has(oldSelf.value().tls.extraNames) && "
    "self.tls.extraNames == oldSelf.value().tls.extraNames : "
    "!has(oldSelf.value().tls) || !has(oldSelf.value().tls.extraNames))",
    "the certificates of the servers do not have the addresses that they advertise: give domain, or, with address "
    "HostIP only, the IP addresses of the Kubernetes nodes in tls.extraNames",
    "servers.externalListener",
)
"""What a certificate of mode Secret has is up to the person who makes it. The addresses of pods are not known
before the pods run."""
AUTHORITY_LIFETIME = rule(
    "has(self.mode) && self.mode != 'SelfSigned' || !has(self.authorityLifetimeHours) || "
    "!has(self.certificateLifetimeHours) || self.authorityLifetimeHours > self.certificateLifetimeHours",
    "must be longer than certificateLifetimeHours",
    "authorityLifetimeHours",
)

ONE_TASK = rule(
    "[has(self.move), has(self.drain), has(self.replace), has(self.rebalance)].filter(given, given).size() == 1",
    "give exactly one of move, drain, replace, rebalance",
)
OTHER_NODE = rule("self.from != self.to", "is the node that has them", "to")
SAME_GROUP = rule(
    "self.from.split('-')[0] == self.to.split('-')[0]",
    "must be in the group of the node that has them: a group is one full copy",
    "to",
)

# -- pod templates -----------------------------------------------------------------------------------------

OWN_VOLUMES = ("config", "data", "tls", "tmp", "waltz-journal", "zookeeper-auth")
OWN_POD_FIELDS = {
    name: rule("false", f"is the operator's own{hint}")
    for name, hint in (
        ("hostname", ""),
        ("subdomain", ""),
        ("restartPolicy", ""),
        ("terminationGracePeriodSeconds", ": use drainSeconds"),
    )
}
"""Field of a PodSpec that nobody may set: why."""
NAMED = rule("self.all(entry, has(entry.name))", "every entry needs a name")
VOLUMES = rule(
    f"self.all(entry, !has(entry.name) || !(entry.name in {list(OWN_VOLUMES)}))",
    f"{', '.join(OWN_VOLUMES)} are the operator's own",
)
NAMED_LISTS = ("containers", "initContainers", "volumes")
PLAIN_LISTS = ("tolerations", "topologySpreadConstraints")


def pod_spec() -> dict[str, Any]:
    """Extra schema for a piece of a PodSpec: what the operator counts on. All else in it is kept as it is,
    and judged by the API server when the pods' template is applied."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    named = {**free, "properties": {"name": {"type": "string", "maxLength": 253}}}
    fields: dict[str, Any] = {
        name: rules(own, type="integer" if name.endswith("Seconds") else "string")
        for name, own in OWN_POD_FIELDS.items()
    }
    for name in (*NAMED_LISTS, *PLAIN_LISTS):
        fields[name] = {"type": "array", "maxItems": MAX_POD_ENTRIES, "items": dict(free)}
    for name in NAMED_LISTS:
        found = (NAMED, VOLUMES) if name == "volumes" else (NAMED,)
        fields[name] |= rules(*found, items=dict(named))
    return {"x-kubernetes-preserve-unknown-fields": True, "properties": fields}
