"""Release 0.13.2 in pods: an image of its compiled classes, a ZooKeeper that nobody manages, three storage
nodes, two servers, a client that writes, and a pod for its tools, all in one namespace.

`WALTZ_RELEASE_0_13_2` names the build, as for the suite of real peers. Every process has a key store with a
certificate for the name by which it is in ZooKeeper, and verifies the others.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import kind
from tests.e2e.images import TAG
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.shell import run
from tests.integration.authority import Authority, of_rsa
from tests.interop.live import key_stores
from tests.interop.live.release import MAIN, SETTING, Release

IMAGE = f"waltz-0-13-2:{TAG}"
ROOT = "/waltz_cluster"
PARTITIONS = 4
NODES = ("storage-1", "storage-2", "storage-3")
SERVERS = ("server-1", "server-2")
WRITER, TOOLS, ZOOKEEPER = "writer", "tools", "zookeeper"
NAMESPACE = "waltz-adopt"
CONNECT_STRING = f"{ZOOKEEPER}.{NAMESPACE}:2181"
STORAGE_PORT, ADMIN_PORT, SERVER_PORT = 55280, 55281, 55180

_SUBDOMAIN = "old"
_CLUSTER_NAME = "ledger"
_SESSION_TIMEOUT_MS = 10_000
_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CLASS_PATH = "/opt/release/classes:/opt/release/lib/*"
_LOGGING = "-Dlog4j.configuration=file:/opt/release/log4j.properties"
_CONFIG, _STORES, _DATA = "/etc/waltz", "/etc/waltz-tls", "/data"
_JOURNAL = f"{_DATA}/journal"
_DOCKERFILE = f"""\
FROM waltz-zookeeper:{TAG}
COPY classes /opt/release/classes
COPY lib /opt/release/lib
COPY log4j.properties /opt/release/
ENTRYPOINT []
"""
_ZOO_CFG = f"""\
tickTime=1000
dataDir=/var/lib/zookeeper
clientPort=2181
maxSessionTimeout={2 * _SESSION_TIMEOUT_MS}
"""
_SECONDS = 300.0


def build(folder: Path) -> str:
    """The image, made in `folder` from what the setting names, on top of that of the managed ZooKeeper, which
    has Java. ReleaseMissingError."""
    release = Release.find(os.environ[SETTING], folder / "release")
    context = folder / "context"
    shutil.rmtree(context, ignore_errors=True)
    (context / "lib").mkdir(parents=True)
    (context / "Dockerfile").write_text(_DOCKERFILE)
    for part in map(Path, release.class_path.split(os.pathsep)):
        if part.is_dir():
            shutil.copytree(part, context / "classes", dirs_exist_ok=True)
        else:
            shutil.copy(part, context / "lib")
    shutil.copy(release.logging, context / "log4j.properties")
    run(["docker", "build", "--quiet", "-t", IMAGE, str(context)], timeout_seconds=_SECONDS)
    kind.load([IMAGE])
    return IMAGE


class OldCluster:
    """One cluster of the release, in the namespace of `kubectl`."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self._kubectl = kubectl
        self._folder = folder / "tls"
        shutil.rmtree(self._folder, ignore_errors=True)
        domain = f"{_SUBDOMAIN}.{kubectl.namespace}.svc"
        self.domain = domain
        self.authority: Authority = key_stores.make(
            self._folder, f"*.{domain}", f"*.{domain}.cluster.local", make_key=of_rsa
        )

    def address(self, node: str) -> str:
        """host:port of a storage node, as it is in ZooKeeper."""
        return f"{node}.{self.domain}:{STORAGE_PORT}"

    def start(self) -> None:
        """Everything, in the order in which its own documents have it; returns when the client's appends are
        acknowledged."""
        self._kubectl("create", "secret", "generic", "old-tls", *self._files())
        configs = {f"{name}.yml": yaml.safe_dump(keys) for name, keys in _configurations().items()}
        self._kubectl.apply(
            _object("v1", "ConfigMap", "old", data=configs | {"zoo.cfg": _ZOO_CFG}),
            _service(_SUBDOMAIN, {"clusterIP": "None", "publishNotReadyAddresses": True}),
            _service(ZOOKEEPER, {"ports": [{"port": 2181}]}),
            _pod(ZOOKEEPER, ["sh", "/opt/zookeeper/start.sh", f"{_CONFIG}/zoo.cfg"], 2181),
            _pod(TOOLS, ["sleep", "infinity"]),
        )
        self._until_ready(ZOOKEEPER, TOOLS)
        self.tool("ZooKeeperCli", "create", "-n", _CLUSTER_NAME, "-p", str(PARTITIONS))
        for group, node in enumerate(NODES):
            place = ["-s", self.address(node)]
            self.tool("ZooKeeperCli", "add-storage-node", *place, "-a", str(ADMIN_PORT), "-g", str(group))
            self.tool("ZooKeeperCli", "assign-partition", *place, "-p", f"0-{PARTITIONS - 1}")
        self._kubectl.apply(*(_pod(name, _process("storage", "storage"), ADMIN_PORT) for name in NODES))
        self._until_ready(*NODES)
        self.tool("StorageCli", "sync-partitions")
        self._kubectl.apply(*(_pod(name, _process("server", "server"), SERVER_PORT) for name in SERVERS))
        self._until_ready(*SERVERS)
        writes = " ".join([*_java("Load"), f"{_CONFIG}/tools.yml", WRITER])
        # Its standard input stays open: it writes until its pod is deleted.
        command = ["sh", "-c", f"mkfifo {_DATA}/stop && exec 3<>{_DATA}/stop && {writes} <&3 >{_JOURNAL}"]
        self._kubectl.apply(_pod(WRITER, command, labels={"waltz.dev/client": "true"}))
        wait_until("the client of 0.13.2 writes", lambda: self.acknowledged() > 0, _SECONDS)

    def tool(self, name: str, command: str, *arguments: str) -> str:
        """What one of its command line tools prints. CommandError."""
        words = [*_java(MAIN[name]), command, "-c", f"{_CONFIG}/tools.yml", *arguments]
        return self._kubectl("exec", TOOLS, "--", *words)

    def stop(self, *names: str) -> None:
        """SIGTERM; returns when the pods are gone."""
        self._kubectl("delete", "pod", *names)

    def acknowledged(self) -> int:
        """How many appends its client has reported as committed."""
        count = f"grep -c '^C ' {_JOURNAL} || true"
        return int(self._kubectl("exec", WRITER, "--", "sh", "-c", count))

    def journal(self) -> Sequence[str]:
        """What its client wrote down until now, whole lines; see `Load.java`."""
        lines = self._kubectl("exec", WRITER, "--", "cat", _JOURNAL, timeout_seconds=_SECONDS).split("\n")
        return lines[:-1]

    def _until_ready(self, *names: str) -> None:
        pods = [f"pod/{name}" for name in names]
        self._kubectl("wait", "--for=condition=Ready", *pods, f"--timeout={_SECONDS:g}s", timeout_seconds=400)

    def _files(self) -> list[str]:
        return [f"--from-file={name}={self._folder / name}" for name in ("server.jks", "trust.jks")]


def _configurations() -> dict[str, dict[str, object]]:
    common: dict[str, object] = {
        "zookeeper.connectString": CONNECT_STRING,
        "zookeeper.sessionTimeout": _SESSION_TIMEOUT_MS,
        "cluster.root": ROOT,
    }
    stores = key_stores.keys(Path(_STORES), "jks", "JKS")

    def tls(prefix: str) -> dict[str, object]:
        return {f"{prefix}.{key}": value for key, value in stores.items()}

    storage = {
        "storage.port": STORAGE_PORT,
        "storage.admin.port": ADMIN_PORT,
        "storage.jetty.port": 55282,
        "storage.directory": _DATA,
    }
    server = {"server.port": SERVER_PORT, "server.jetty.port": 55181}
    return {
        "storage": common | storage | tls("storage.ssl"),
        "server": common | server | tls("server.ssl"),
        "tools": common | tls("client.ssl") | tls("ssl"),
    }


def _java(main: str) -> list[str]:
    return [*_JAVA, _LOGGING, "-cp", _CLASS_PATH, main]


def _process(kind_of: str, config: str) -> list[str]:
    return [*_java(MAIN[kind_of]), f"{_CONFIG}/{config}.yml"]


def _pod(
    name: str, command: Sequence[str], port: int | None = None, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": name,
        "image": IMAGE,
        "command": list(command),
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG},
            {"name": "tls", "mountPath": _STORES},
            {"name": "data", "mountPath": _DATA},
        ],
    }
    if port is not None:
        container["readinessProbe"] = {"tcpSocket": {"port": port}, "periodSeconds": 1}
    spec = {
        "hostname": name,
        "subdomain": _SUBDOMAIN,
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": "old"}},
            {"name": "tls", "secret": {"secretName": "old-tls"}},
            {"name": "data", "emptyDir": {}},
        ],
    }
    made = _object("v1", "Pod", name, spec=spec)
    made["metadata"]["labels"] = {"app": "old", "name": name, **(labels or {})}
    return made


def _service(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    selector = {"app": "old"} if name == _SUBDOMAIN else {"name": name}
    return _object("v1", "Service", name, spec={"selector": selector, **spec})


def _object(version: str, kind_of: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind_of, "metadata": {"name": name}, **fields}
