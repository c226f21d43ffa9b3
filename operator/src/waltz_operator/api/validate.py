"""What is wrong with a specification beyond what its schema says. Pure.

The API server has the same rules, but for configuration keys, and refuses an object that breaks one:
`admission.py` has them and their sentences. They are repeated here for where no API server is in between:
files that `waltz k8s render` reads, objects stored before a rule existed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from waltz_operator.api import admission, journal
from waltz_operator.api.base import MAX_CLUSTER_NAME
from waltz_operator.api.cluster import WaltzCluster, WaltzClusterSpec
from waltz_operator.api.config_check import check_config
from waltz_operator.api.console import CONSOLE_IMAGE, CONSOLE_SECRET
from waltz_operator.api.parts import (
    AdvertisedAddress,
    PodTemplate,
    StorageGroup,
    ZooKeeperAuthentication,
    ZooKeeperTls,
)
from waltz_operator.api.security import ClientAuthentication, TlsMode, shortest_address

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_PORT = re.compile(r":([0-9]+)\Z")


class Problem(NamedTuple):
    """One mistake: the field, dotted, and what to do about it. `stops`: nothing is worked on before it is
    mended; else everything but what it is about."""

    path: str
    text: str
    stops: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def _problem(path: str, rule: Mapping[str, Any]) -> Problem:
    """What the API server says of a rule that is broken at `path`."""
    return Problem(path + rule.get("fieldPath", ""), rule["message"])


class Found(NamedTuple):
    """A line for each mistake of a specification."""

    stopping: tuple[str, ...]
    others: tuple[str, ...]


def problem_lines(spec: WaltzClusterSpec) -> Found:
    """What is wrong with it, by whether it can be worked on all the same."""
    found = validate(spec)
    return Found(
        tuple(str(one) for one in found if one.stops), tuple(str(one) for one in found if not one.stops)
    )


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
        *_check_journal(spec),
        *_check_listener(spec),
        *_check_tls(spec),
        *_check_console(spec),
        *check_pod_template("spec.storage.podTemplate", spec.storage.pod_template),
        *check_pod_template("spec.servers.podTemplate", spec.servers.pod_template),
        *check_pod_template("spec.copyJobs.podTemplate", spec.copy_jobs.pod_template),
        *check_pod_template("spec.console.podTemplate", spec.console.pod_template),
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
    images = spec.images
    roles = [
        images.server,
        images.storage,
        *([images.zookeeper] if spec.zookeeper.managed is not None else []),
    ]
    if spec.version is None and None in roles:
        yield _problem("spec", admission.IMAGES)


def _check_zookeeper(spec: WaltzClusterSpec) -> Iterable[Problem]:
    zookeeper = spec.zookeeper
    if (zookeeper.connect_string is None) == (zookeeper.managed is None):
        yield _problem("spec.zookeeper", admission.EITHER_ZOOKEEPER)
    if zookeeper.managed is not None:
        own = zookeeper.managed.authentication not in (None, ZooKeeperAuthentication.NONE)
        if own and zookeeper.auth is not None:
            yield _problem("spec.zookeeper", admission.ONE_AUTHENTICATION)
        if zookeeper.managed.tls is ZooKeeperTls.ENABLED:
            if spec.tls.mode is TlsMode.DISABLED:
                yield _problem("spec", admission.ZOOKEEPER_TLS)
            if spec.tls.secrets is not None and spec.tls.secrets.zookeeper is None:
                yield _problem("spec", admission.ZOOKEEPER_SECRET)
        yield from check_pod_template("spec.zookeeper.managed.podTemplate", zookeeper.managed.pod_template)
    if {".", ".."} & set((zookeeper.root or "").split("/")):
        yield _problem("spec.zookeeper.root", admission.ROOT)
    if not _ports_are_possible(zookeeper.connect_string or ""):
        yield _problem("spec.zookeeper.connectString", admission.PORTS)


def _ports_are_possible(addresses: str) -> bool:
    found = (_PORT.search(address) for address in addresses.split(","))
    return all(0 < int(port[1]) < 65536 for port in found if port is not None)


def _check_groups(spec: WaltzClusterSpec) -> Iterable[Problem]:
    path = "spec.storage.groups"
    groups = spec.storage.groups or ()
    if groups and spec.replicas is not None:
        yield _problem("spec", admission.EITHER_COPIES)
    for name in _repeated(group.name for group in groups):
        yield Problem(path, f"there are two groups {name}")
    if _repeated(str(group.id) for group in groups if group.id is not None):
        yield _problem(path, admission.GROUP_IDS)
    for group in groups:
        yield from _check_group(f"{path}[{group.name}]", group)
    external = [node.connect_string for group in groups for node in group.nodes or () if node.connect_string]
    if _repeated(external):
        yield _problem(path, admission.CONNECT_STRINGS)


def _check_journal(spec: WaltzClusterSpec) -> Iterable[Problem]:
    storage = spec.storage
    if storage.journal is None:
        return
    path = "spec.storage"
    if any(key.startswith("storage.journal.") for key in storage.config):
        yield Problem(f"{path}.journal", journal.EITHER_KEYS)
    if not storage.journal.possible:
        yield _problem(f"{path}.journal", journal.SIZE)
    if not storage.journal.fits_own_volume:
        yield _problem(f"{path}.journal", journal.OWN_VOLUME)
    if not storage.journal.fits(storage.size):
        yield _problem(path, journal.VOLUME)
    if not all(storage.journal.fits(group.size) for group in storage.groups or () if group.size):
        yield _problem(path, journal.GROUP_VOLUMES)


def _check_group(path: str, group: StorageGroup) -> Iterable[Problem]:
    if group.count is not None and group.nodes is not None:
        yield _problem(path, admission.COUNT_OR_NODES)
    for name in _repeated(node.name for node in group.nodes or ()):
        yield Problem(f"{path}.nodes", f"there are two nodes {name}")
    for node in group.nodes or ():
        where = f"{path}.nodes[{node.name}]"
        given = [value for value in (node.connect_string, node.admin_port) if value is not None]
        if len(given) != (2 if node.external else 0):
            yield _problem(where, admission.EXTERNAL)
        if not _ports_are_possible(node.connect_string or ""):
            yield _problem(f"{where}.connectString", admission.PORTS)
        if node.connect_string is not None and int(node.connect_string.rpartition(":")[2]) == node.admin_port:
            yield _problem(where, admission.ADMIN_PORT)


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _check_listener(spec: WaltzClusterSpec) -> Iterable[Problem]:
    listener, tls = spec.servers.external_listener, spec.tls
    if listener is None:
        return
    if listener.domain is not None:
        if re.fullmatch(admission.DOMAIN_NAME, listener.domain) is None:
            yield _problem("spec.servers.externalListener.domain", admission.DOMAIN)
        return
    on_node = listener.address is AdvertisedAddress.HOST_IP
    covered = on_node and any(re.search(admission.ADDRESS, name) for name in tls.extra_names)
    if not covered and tls.mode not in (TlsMode.DISABLED, TlsMode.SECRET):
        # A cluster that was made before this rule serves those who do not compare names.
        yield _problem("spec", admission.BARE_ADDRESS)._replace(stops=False)


def _check_tls(spec: WaltzClusterSpec) -> Iterable[Problem]:
    tls = spec.tls
    if (tls.mode is TlsMode.SECRET) != (tls.secrets is not None):
        yield _problem("spec.tls", admission.TLS_SECRETS)
    if (tls.mode is TlsMode.CERT_MANAGER) != (tls.issuer_ref is not None):
        yield _problem("spec.tls", admission.TLS_ISSUER)
    verified = tls.mode is not TlsMode.DISABLED
    peers = tls.allowed_peers
    lists = {"server": peers.server, "storage": peers.storage, "admin": peers.admin}
    given = {field: names for field, names in lists.items() if names is not None}
    if given and not verified:
        yield _problem("spec.tls", admission.PEERS_NEED_TLS)
    if tls.mode is TlsMode.SECRET and () in given.values():
        yield _problem("spec.tls", admission.PEERS_OF_SECRETS)
    for field, names in given.items():
        if not all(name.strip() for name in names):
            yield _problem(f"spec.tls.allowedPeers.{field}", admission.PEER_NAMES)
    if not all(_is_certificate_name(name) for name in tls.extra_names):
        yield _problem("spec.tls.extraNames", admission.EXTRA_NAMES)
    if verified and peers.server is not None and tls.client_authentication is ClientAuthentication.NONE:
        yield _problem("spec.tls", admission.PEERS_NEED_CERTIFICATES)
    if tls.mode is TlsMode.SELF_SIGNED and tls.authority_lifetime_hours <= tls.certificate_lifetime_hours:
        yield _problem("spec.tls", admission.AUTHORITY_LIFETIME)


def _is_certificate_name(name: str) -> bool:
    fits = re.fullmatch(admission.EXTRA_NAME, name) is not None
    return fits and (":" not in name or shortest_address(name) is not None)


def _check_console(spec: WaltzClusterSpec) -> Iterable[Problem]:
    if not spec.console.enabled:
        return
    if spec.version is None and spec.images.console is None:
        yield _problem("spec", CONSOLE_IMAGE)
    if spec.tls.secrets is not None and spec.tls.secrets.console is None:
        yield _problem("spec", CONSOLE_SECRET)


def check_pod_template(path: str, template: PodTemplate) -> Iterable[Problem]:
    """What a person may not lay over a pod template, because the operator counts on it."""
    spec = template.spec
    for field, own in admission.OWN_POD_FIELDS.items():
        if field in spec:
            yield _problem(f"{path}.spec.{field}", own)
    for field in (*admission.NAMED_LISTS, *admission.PLAIN_LISTS):
        entries = spec.get(field, [])
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            yield Problem(f"{path}.spec.{field}", "must be a list of objects")
        elif field in admission.NAMED_LISTS:
            if not all(isinstance(entry.get("name"), str) for entry in entries):
                yield _problem(f"{path}.spec.{field}", admission.NAMED)
            if field == "volumes" and any(entry.get("name") in admission.OWN_VOLUMES for entry in entries):
                yield _problem(f"{path}.spec.volumes", admission.VOLUMES)
