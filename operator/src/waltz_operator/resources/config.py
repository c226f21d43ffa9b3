"""The configuration files of the roles: flat keys of release 0.13.2 and ours, what a person wrote on top."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.security import ClientAuthentication, TlsMode
from waltz_operator.api.topology import (
    SERVER_HTTP_PORT,
    SERVER_PORT,
    STORAGE_ADMIN_PORT,
    STORAGE_HTTP_PORT,
    STORAGE_PORT,
    cluster_root,
    connect_string,
    console_peer,
    host_port,
    operator_peer,
    server_domain,
    server_peer,
    zookeeper_tls,
)
from waltz_operator.resources.common import AUTH_DIRECTORY, TLS_DIRECTORY
from waltz_operator.resources.files import AUTH_FILE
from waltz_operator.resources.inputs import RenderInputs
from waltz_operator.resources.login import Level, login_of

Keys = dict[str, object]
STORAGE_FILE = "waltz-storage.yml"
SERVER_FILE = "waltz-server.yml"
CONSOLE_FILE = "waltz-console.yml"
DATA_DIRECTORY = "/var/lib/waltz"


def common_keys(cluster: WaltzCluster, members: int | None = None, level: Level = Level.NONE) -> Keys:
    """What every role needs to find the cluster."""
    zookeeper = cluster.spec.zookeeper
    keys: Keys = {
        "zookeeper.connectString": connect_string(cluster, members),
        "zookeeper.sessionTimeout": zookeeper.session_timeout_seconds * 1000,
        "cluster.root": cluster_root(cluster),
    }
    if zookeeper_tls(cluster):
        keys |= _tls(cluster, "zookeeper.ssl", verifies=True)
    login = login_of(cluster, level)
    if login is not None:
        keys |= {
            "zookeeper.auth.scheme": login.scheme,
            "zookeeper.auth.file": f"{AUTH_DIRECTORY}/{AUTH_FILE}",
            "zookeeper.acl": login.acl,
        }
    return keys


def storage_keys(
    cluster: WaltzCluster, listen: str, members: int | None = None, level: Level = Level.NONE
) -> Keys:
    """Configuration of every storage node: they differ in nothing but their volume. `listen`: the address to
    bind."""
    journal = cluster.spec.storage.journal
    return {
        **common_keys(cluster, members, level),
        "storage.port": STORAGE_PORT,
        "storage.admin.port": STORAGE_ADMIN_PORT,
        "storage.jetty.port": STORAGE_HTTP_PORT,
        "storage.directory": DATA_DIRECTORY,
        "storage.bind.host": listen,
        "storage.log.json": True,
        **_tls(cluster, "storage.ssl", verifies=True),
        **_allowed(cluster, "storage.ssl.allowedPeers", cluster.spec.tls.allowed_peers.storage, servers=True),
        **_allowed(
            cluster, "storage.admin.ssl.allowedPeers", cluster.spec.tls.allowed_peers.admin, console=True
        ),
        **({} if journal is None else journal.keys),
        **cluster.spec.storage.config,
    }


def server_keys(
    cluster: WaltzCluster, listen: str, members: int | None = None, level: Level = Level.NONE
) -> Keys:
    """Configuration of every server. `{dashed-address}` is the pod's own address, see
    docs/configuration.md."""
    tls = cluster.spec.tls
    verifies = tls.client_authentication is ClientAuthentication.REQUIRED
    listener = cluster.spec.servers.external_listener
    keys: Keys = {
        **common_keys(cluster, members, level),
        "server.port": SERVER_PORT,
        "server.jetty.port": SERVER_HTTP_PORT,
        "server.bind.host": listen,
        "server.advertised.host": f"{{dashed-address}}.{server_domain(cluster)}",
        "server.log.json": True,
        **_tls(cluster, "server.ssl", verifies=verifies),
        **_tls(cluster, "storage.ssl", verifies=True),
    }
    if tls.allowed_peers.server is not None and verifies:
        keys |= _allowed(
            cluster, "server.ssl.allowedPeers", tls.allowed_peers.server, servers=True, console=True
        )
    if listener is not None:
        keys["server.advertised.host"] = (
            f"{{dashed-address}}.{listener.domain}" if listener.domain else "{address}"
        )
        if on_machine := host_port(cluster):
            keys["server.advertised.port"] = on_machine
    return {**keys, **cluster.spec.servers.config}


def console_keys(cluster: WaltzCluster, members: int | None = None, level: Level = Level.NONE) -> Keys:
    """Configuration of the console: that of the tools and of a client."""
    return {
        **common_keys(cluster, members, level),
        **_tls(cluster, "ssl", verifies=True),
        **_tls(cluster, "client.ssl", verifies=True),
    }


def _tls(cluster: WaltzCluster, prefix: str, *, verifies: bool) -> Keys:
    """`verifies`: the peer's certificate too."""
    if cluster.spec.tls.mode is TlsMode.DISABLED:
        return {f"{prefix}.enabled": False}
    keys: Keys = {f"{prefix}.enabled": True, f"{prefix}.keyStore.location": TLS_DIRECTORY}
    if verifies:
        keys[f"{prefix}.trustStore.location"] = TLS_DIRECTORY
    return keys


def _allowed(
    cluster: WaltzCluster,
    key: str,
    named: tuple[str, ...] | None,
    *,
    servers: bool = False,
    console: bool = False,
) -> Keys:
    """Who may connect to a port. The cluster's own names are always among them where we know them."""
    tls = cluster.spec.tls
    if tls.mode is TlsMode.DISABLED:
        return {}
    own: tuple[str, ...] = ()
    if tls.mode is not TlsMode.SECRET:
        own = (*((server_peer(cluster),) if servers else ()), operator_peer(cluster))
        if console and cluster.spec.console.enabled:
            own = (*own, console_peer(cluster))
    names = list(dict.fromkeys((*own, *(named or ()))))
    return {key: names} if names else {}


def with_login(file: str) -> str:
    """Name of the file for pods with credentials. Both are in the ConfigMap: a container that starts again in
    a pod that was made without them does not find a file that names what it has not."""
    return f"{file.removesuffix('.yml')}-login.yml"


def file_for(file: str, level: Level) -> str:
    """The file that a pod of this level reads."""
    return file if level is Level.NONE else with_login(file)


def role_files(inputs: RenderInputs, name: str, file: str, keys: Callable[[Level], Keys]) -> dict[str, str]:
    """The contents of the ConfigMap `name`; pods that still read the file with credentials find it."""
    data = {file: to_yaml(keys(Level.NONE))}
    before = inputs.live.get(("ConfigMap", name), {}).get("data") or {}
    if inputs.login is not Level.NONE:
        data[with_login(file)] = to_yaml(keys(inputs.login))
    elif with_login(file) in before:
        data[with_login(file)] = str(before[with_login(file)])
    return data


def to_yaml(keys: Keys) -> str:
    """The file; the same keys always give the same text."""
    return yaml.safe_dump(keys, sort_keys=True, default_flow_style=False)
