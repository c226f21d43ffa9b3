"""Renders the configuration files of a local cluster. Pure: settings in, flat dotted keys out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from waltz_runtime.ports import LOOPBACK
from waltz_tools.local import private

CLUSTER_NAME = "waltz-local"
CLUSTER_ROOT = "/waltz_local"


def common_keys(zookeeper_port: int, session_timeout_ms: int) -> dict[str, object]:
    """What every role needs to find the cluster."""
    return {
        "zookeeper.connectString": f"{LOOPBACK}:{zookeeper_port}",
        "zookeeper.sessionTimeout": session_timeout_ms,
        "cluster.root": CLUSTER_ROOT,
    }


def tls_keys(prefix: str, enabled: bool, *, connects: bool) -> dict[str, object]:
    """TLS of one prefix. Self-signed certificates that nobody verifies: for this machine's loopback interface
    only."""
    keys: dict[str, object] = {f"{prefix}.enabled": enabled}
    if enabled and connects:
        keys[f"{prefix}.allowUnverified"] = True
    return keys


def storage_keys(
    common: Mapping[str, object], ports: Mapping[str, int], directory: Path, tls: bool
) -> dict[str, object]:
    """Configuration of one storage node."""
    return {
        **common,
        "storage.port": ports["storage"],
        "storage.admin.port": ports["admin"],
        "storage.jetty.port": ports["http"],
        "storage.directory": str(directory),
        "storage.bind.host": LOOPBACK,
        **tls_keys("storage.ssl", tls, connects=False),
    }


def server_keys(common: Mapping[str, object], ports: Mapping[str, int], tls: bool) -> dict[str, object]:
    """Configuration of one server."""
    return {
        **common,
        "server.port": ports["server"],
        "server.jetty.port": ports["http"],
        "server.bind.host": LOOPBACK,
        "server.advertised.host": LOOPBACK,
        **tls_keys("server.ssl", tls, connects=True),
    }


def client_keys(common: Mapping[str, object], tls: bool) -> dict[str, object]:
    """Configuration for clients and, in the same file, for the administration commands."""
    return {**common, **tls_keys("client.ssl", tls, connects=True), **tls_keys("ssl", tls, connects=True)}


def application_keys(
    ports: Sequence[int], client: Mapping[str, object], tls: bool, cluster_key: str | None
) -> dict[str, object]:
    """Configuration of an application that finds the servers without ZooKeeper. `client`: keys of the file
    for clients; those of the client library are kept. `cluster_key`: once it is known, so that no application
    follows another cluster that has got the port of a server."""
    return {
        "servers": [f"{LOOPBACK}:{port}" for port in ports],
        "client.clusterKey": cluster_key,
        **tls_keys("client.ssl", tls, connects=True),
        **{key: value for key, value in client.items() if key.startswith("client.")},
    }


def write_config(path: Path, keys: Mapping[str, object], overrides: Mapping[str, object]) -> None:
    """Write one YAML file of dotted keys; `overrides` win, a value of None removes the key."""
    merged = {key: value for key, value in {**keys, **overrides}.items() if value is not None}
    private.write_text(path, yaml.safe_dump(merged, sort_keys=True))
