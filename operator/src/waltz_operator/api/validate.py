"""What is wrong with a specification beyond what its schema says. Pure.

The API server's own rules (CEL) are repeated where they guard something and no API server may be in
between: files that `waltz k8s render` reads, objects stored before a rule existed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from waltz_operator.api.base import MAX_CLUSTER_NAME, joined
from waltz_operator.api.cluster import WaltzCluster, WaltzClusterSpec
from waltz_operator.api.config_check import check_config
from waltz_operator.api.migration import WaltzMigrationSpec
from waltz_operator.api.parts import PodTemplate, StorageGroup, ZooKeeperAuthentication
from waltz_operator.api.security import ClientAuthentication, TlsMode

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_OWN_VOLUMES = frozenset({"config", "data", "tls", "tmp", "zookeeper-auth"})
_OWN_POD_FIELDS = frozenset({"hostname", "subdomain", "restartPolicy", "terminationGracePeriodSeconds"})


class Problem(NamedTuple):
    """One mistake: the field, dotted, and what to do about it."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def problems(cluster: WaltzCluster) -> list[Problem]:
    """Everything that is wrong with an object, its name included."""
    found = []
    name = cluster.metadata.name
    if len(name) > MAX_CLUSTER_NAME or not _NAME.match(name):
        found.append(
            Problem(
                "metadata.name",
                f"at most {MAX_CLUSTER_NAME} lower-case letters, digits and dashes, the first one a letter",
            )
        )
    return found + validate(cluster.spec)


def validate(spec: WaltzClusterSpec) -> list[Problem]:
    """Everything that is wrong with a specification; empty = it can be worked on."""
    return [
        *_check_images(spec),
        *_check_zookeeper(spec),
        *_check_groups(spec),
        *_check_tls(spec),
        *check_pod_template("spec.storage.podTemplate", spec.storage.pod_template),
        *check_pod_template("spec.servers.podTemplate", spec.servers.pod_template),
        *(
            Problem(f"spec.storage.config[{key}]", text)
            for key, text in check_config("storage", spec.storage.config)
        ),
        *(
            Problem(f"spec.servers.config[{key}]", text)
            for key, text in check_config("server", spec.servers.config)
        ),
    ]


def _check_images(spec: WaltzClusterSpec) -> Iterable[Problem]:
    roles = ("server", "storage", *(("zookeeper",) if spec.zookeeper.managed is not None else ()))
    for role in roles:
        if spec.version is None and getattr(spec.images, role) is None:
            yield Problem(f"spec.images.{role}", "is needed where spec.version is not given")


def _check_zookeeper(spec: WaltzClusterSpec) -> Iterable[Problem]:
    zookeeper = spec.zookeeper
    if (zookeeper.connect_string is None) == (zookeeper.managed is None):
        yield Problem("spec.zookeeper", "give connectString or managed, exactly one of them")
    if zookeeper.managed is not None:
        own = zookeeper.managed.authentication not in (None, ZooKeeperAuthentication.NONE)
        if own and zookeeper.auth is not None:
            yield Problem(
                "spec.zookeeper.auth",
                "managed.authentication makes credentials of its own: give it or auth, not both",
            )
        yield from check_pod_template("spec.zookeeper.managed.podTemplate", zookeeper.managed.pod_template)
    for part in (zookeeper.root or "/").split("/")[1:]:
        if part in (".", ".."):
            yield Problem("spec.zookeeper.root", f"{part} cannot be part of a path in ZooKeeper")
    for entry in (zookeeper.connect_string or "").split(","):
        yield from _check_port("spec.zookeeper.connectString", entry)


def _check_port(path: str, address: str) -> Iterable[Problem]:
    _, colon, port = address.rpartition(":")
    if colon and not 0 < int(port) < 65536:
        yield Problem(path, f"{address} has no possible port")


def _check_groups(spec: WaltzClusterSpec) -> Iterable[Problem]:
    path = "spec.storage.groups"
    groups = spec.storage.groups or ()
    if groups and spec.replicas is not None:
        yield Problem("spec.replicas", "give replicas or storage.groups, not both")
    for name in _repeated(group.name for group in groups):
        yield Problem(path, f"there are two groups {name}")
    for number in _repeated(str(group.id) for group in groups if group.id is not None):
        yield Problem(path, f"two groups have the id {number}")
    for group in groups:
        yield from _check_group(f"{path}[{group.name}]", group)
    external = [node.connect_string for group in groups for node in group.nodes or () if node.connect_string]
    for connect_string in _repeated(external):
        yield Problem(path, f"two nodes have the connect string {connect_string}")


def _check_group(path: str, group: StorageGroup) -> Iterable[Problem]:
    if group.count is not None and group.nodes is not None:
        yield Problem(f"{path}.count", "give count or nodes, not both")
    for name in _repeated(node.name for node in group.nodes or ()):
        yield Problem(f"{path}.nodes", f"there are two nodes {name}")
    for node in group.nodes or ():
        where = f"{path}.nodes[{node.name}]"
        if node.external and (node.connect_string is None or node.admin_port is None):
            yield Problem(where, "an external node needs connectString and adminPort")
        if not node.external and (node.connect_string is not None or node.admin_port is not None):
            yield Problem(where, "connectString and adminPort belong to a node with external: true")
        if node.connect_string is not None:
            yield from _check_port(f"{where}.connectString", node.connect_string)
            if node.connect_string.endswith(f":{node.admin_port}"):
                yield Problem(f"{where}.adminPort", "must differ from the storage port")


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _check_tls(spec: WaltzClusterSpec) -> Iterable[Problem]:
    tls = spec.tls
    if (tls.mode is TlsMode.SECRET) != (tls.secrets is not None):
        yield Problem("spec.tls.secrets", "goes with mode Secret, which needs it")
    if (tls.mode is TlsMode.CERT_MANAGER) != (tls.issuer_ref is not None):
        yield Problem("spec.tls.issuerRef", "goes with mode CertManager, which needs it")
    verified = tls.mode is not TlsMode.DISABLED
    peers = tls.allowed_peers
    for field, names in (("server", peers.server), ("storage", peers.storage), ("admin", peers.admin)):
        if names is not None and not verified:
            yield Problem(f"spec.tls.allowedPeers.{field}", "needs TLS: without it a peer has no name")
        if names is not None and not all(name.strip() for name in names):
            yield Problem(f"spec.tls.allowedPeers.{field}", "a name is empty")
    if verified and peers.server is not None and tls.client_authentication is ClientAuthentication.NONE:
        yield Problem("spec.tls.allowedPeers.server", "needs clientAuthentication: Required")
    if tls.mode is TlsMode.SELF_SIGNED and tls.authority_lifetime_hours <= tls.certificate_lifetime_hours:
        yield Problem("spec.tls.authorityLifetimeHours", "must be longer than certificateLifetimeHours")


def check_pod_template(path: str, template: PodTemplate) -> Iterable[Problem]:
    """What a person may not lay over a pod template, because the operator counts on it."""
    spec = template.spec
    for field in sorted(_OWN_POD_FIELDS & spec.keys()):
        hint = ": use drainSeconds" if field == "terminationGracePeriodSeconds" else ""
        yield Problem(f"{path}.spec.{field}", f"is the operator's own{hint}")
    for field in ("containers", "initContainers", "volumes", "tolerations", "topologySpreadConstraints"):
        entries = spec.get(field, [])
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            yield Problem(f"{path}.spec.{field}", "must be a list of objects")
        elif field in ("containers", "initContainers", "volumes"):
            if not all(isinstance(entry.get("name"), str) for entry in entries):
                yield Problem(f"{path}.spec.{field}", "every entry needs a name")
            taken = _OWN_VOLUMES & {str(entry.get("name")) for entry in entries}
            if field == "volumes" and taken:
                yield Problem(f"{path}.spec.volumes", f"{joined(sorted(taken))}: the operator's own")


def validate_migration(spec: WaltzMigrationSpec) -> list[Problem]:
    """Everything that is wrong with a migration by itself; what its cluster has to do with it the planner
    says."""
    found = []
    if [spec.move, spec.drain, spec.replace, spec.rebalance].count(None) != 3:
        found.append(Problem("spec", "give exactly one of move, drain, replace, rebalance"))
    move = spec.move
    if move is not None:
        if move.source == move.target:
            found.append(Problem("spec.move.to", "is the node that has them"))
        if move.source.partition("-")[0] != move.target.partition("-")[0]:
            found.append(
                Problem(
                    "spec.move.to", "must be in the group of the node that has them: a group is one full copy"
                )
            )
        for number in _repeated(str(partition) for partition in move.partitions or ()):
            found.append(Problem("spec.move.partitions", f"{number} is there twice"))
    return found
