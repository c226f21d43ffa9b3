"""What a person decides about pods: the input of their template's hash. Nothing else restarts them.

Left out on purpose: the version of the operator, sizes of volumes, numbers of pods, keys, certificates and
their lifetimes (processes follow their files). Who signs certificates and who is trusted is in it: a new
authority comes in rounds, and that all pods have restarted is the proof that the next round may begin (ADR
19). Defaults are left out, so that a field that a later version adds changes no hash.
"""

from __future__ import annotations

from waltz_operator.api.base import Model
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import RESTART_SERVER, RESTART_STORAGE, RESTART_ZOOKEEPER
from waltz_operator.api.parts import StorageGroup
from waltz_operator.api.security import ClientAuthentication, TlsMode
from waltz_operator.api.topology import console_name, server_name, storage_name, zookeeper_tls
from waltz_operator.resources.addresses import listen_address
from waltz_operator.resources.common import CONSOLE, SERVER, STORAGE, ZOOKEEPER
from waltz_operator.resources.config import common_keys
from waltz_operator.resources.images import given
from waltz_operator.resources.inputs import Obj, RenderInputs

AUTHORITIES = "authorities"


def _plain(model: Model | None, *fields: str) -> Obj | None:
    """What differs from the defaults; of `fields` only, when some are named."""
    if model is None:
        return None
    return model.model_dump(mode="json", exclude_defaults=True, include=set(fields) or None)


def _images(cluster: WaltzCluster, inputs: RenderInputs, role: str) -> Obj:
    """What the specification says, not what the operator's setup makes of it: a new setup comes in with the
    next decision."""
    images = cluster.spec.images
    pull = _plain(images, "pull_policy", "pull_secrets")
    explicit = given(images, role)
    if explicit is not None:
        return {"image": explicit, "pull": pull}
    return {"version": inputs.version or cluster.spec.version, "registry": images.registry, "pull": pull}


def _listening(inputs: RenderInputs, service: str) -> Obj:
    """The address that pods listen on, where it is not that of all clusters before there was a choice."""
    address = listen_address(inputs, service)
    return {} if address == "0.0.0.0" else {"listen": address}


def _authorities(inputs: RenderInputs, role: str) -> Obj:
    found = inputs.tls_digests.get(role)
    return {AUTHORITIES: found.authorities if found is not None else ""}


def with_material(basis: Obj, inputs: RenderInputs, role: str) -> Obj:
    """The basis in the form of earlier operators, for which every new certificate is a decision."""
    found = inputs.tls_digests.get(role)
    rest = {key: value for key, value in basis.items() if key != AUTHORITIES}
    return rest | {"certificates": found.material if found is not None else ""}


def storage_config_basis(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """Of the storage nodes' configuration file."""
    journal = cluster.spec.storage.journal
    return {
        **_listening(inputs, storage_name(cluster)),
        "common": common_keys(cluster, inputs.zookeeper_members, inputs.login),
        "tls": _plain(cluster.spec.tls, "mode"),
        "peers": _plain(cluster.spec.tls.allowed_peers, "storage", "admin"),
        "config": dict(cluster.spec.storage.config),
        **({} if journal is None else {"journal": journal.keys}),
        **_console(cluster),
    }


def _console(cluster: WaltzCluster) -> Obj:
    """Whether a port takes the certificate of the console, where it names those that it takes."""
    enabled = cluster.spec.console.enabled and cluster.spec.tls.mode is not TlsMode.DISABLED
    return {"console": True} if enabled and cluster.spec.tls.mode is not TlsMode.SECRET else {}


def storage_basis(cluster: WaltzCluster, inputs: RenderInputs, group: StorageGroup) -> Obj:
    """Of the pods of one storage group."""
    storage = cluster.spec.storage
    return {
        **_images(cluster, inputs, STORAGE),
        "file": storage_config_basis(cluster, inputs),
        "secrets": _plain(cluster.spec.tls.secrets, "storage"),
        "auth": [_plain(cluster.spec.zookeeper.auth), inputs.auth_hash],
        **_authorities(inputs, "storage"),
        "resources": (group.resources or storage.resources).model_dump(mode="json"),
        "place": [group.zone, storage.spread.value],
        "template": _plain(storage.pod_template),
        "restart": cluster.metadata.annotations.get(RESTART_STORAGE, ""),
    }


def server_config_basis(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """Of the servers' configuration file."""
    spec = cluster.spec
    verifies = spec.tls.client_authentication is ClientAuthentication.REQUIRED
    return {
        **_listening(inputs, server_name(cluster)),
        "common": common_keys(cluster, inputs.zookeeper_members, inputs.login),
        "tls": _plain(spec.tls, "mode", "client_authentication"),
        "peers": _plain(spec.tls.allowed_peers, "server") if verifies else None,
        "listener": _plain(spec.servers.external_listener),
        "outside": spec.servers.external_listener is not None,
        "config": dict(spec.servers.config),
        **(_console(cluster) if verifies and spec.tls.allowed_peers.server is not None else {}),
    }


def server_basis(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """Of the server pods."""
    servers = cluster.spec.servers
    return {
        **_images(cluster, inputs, SERVER),
        "file": server_config_basis(cluster, inputs),
        "secrets": _plain(cluster.spec.tls.secrets, "server"),
        "auth": [_plain(cluster.spec.zookeeper.auth), inputs.auth_hash],
        **_authorities(inputs, "server"),
        "resources": servers.resources.model_dump(mode="json"),
        "drain": servers.drain_seconds,
        "template": _plain(servers.pod_template),
        "restart": cluster.metadata.annotations.get(RESTART_SERVER, ""),
    }


def console_config_basis(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """Of the configuration file of the console."""
    return {
        "common": common_keys(cluster, inputs.zookeeper_members, inputs.login),
        "tls": _plain(cluster.spec.tls, "mode"),
    }


def console_basis(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    """Of the pod of the console."""
    wanted = cluster.spec.console
    return {
        **_images(cluster, inputs, CONSOLE),
        **_listening(inputs, console_name(cluster)),
        "file": console_config_basis(cluster, inputs),
        "secrets": _plain(cluster.spec.tls.secrets, "console"),
        "auth": [_plain(cluster.spec.zookeeper.auth), inputs.auth_hash],
        **_authorities(inputs, "console"),
        "wanted": _plain(wanted, "show_data", "hosts"),
        "resources": wanted.resources.model_dump(mode="json"),
        "template": _plain(wanted.pod_template),
    }


def zookeeper_basis(cluster: WaltzCluster, inputs: RenderInputs, members: int) -> Obj:
    """Of the pods of the managed ZooKeeper, when its ensemble has so many members."""
    managed = cluster.spec.zookeeper.managed
    tls = {"secrets": _plain(cluster.spec.tls.secrets, "zookeeper"), **_authorities(inputs, "zookeeper")}
    return {
        **_images(cluster, inputs, ZOOKEEPER),
        "file": {"replicas": members},
        "resources": managed.resources.model_dump(mode="json") if managed else None,
        "template": _plain(managed.pod_template) if managed else None,
        "restart": cluster.metadata.annotations.get(RESTART_ZOOKEEPER, ""),
        **(tls if zookeeper_tls(cluster) else {}),
    }
