"""A cluster of release 0.13.2 becomes one of the operator, as docs/operator-changes.md says ("From 0.13.2"),
while a client of each release writes. The programs of 0.13.2 run in pods; without a build of them there is
nothing to try, and the table says so."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from tests.e2e import evidence, release
from tests.e2e.images import TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.release import OldCluster
from tests.e2e.shell import ROOT
from tests.e2e.world import WAIT_SECONDS, World
from tests.integration.authority import Authority
from tests.interop.live.release import SETTING

NAMESPACE = release.NAMESPACE
CLUSTER = "adopted"
_CLIENT_SECRET = "application-certificate"
_ROLES = ("server", "storage", "operator")


def adopt(world: World) -> None:
    """The example is applied while it is paused, then servers and storage nodes are exchanged; what was
    acknowledged to either client is in the log."""
    if not os.environ.get(SETTING):
        world.notes.append(f"left out: {SETTING} is not set")
        return
    folder = Path(world.kubectl.kubeconfig).parent / "adoption"
    folder.mkdir(exist_ok=True)
    release.build(folder)
    kubectl = world.kubectl.in_namespace(NAMESPACE)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    try:
        _adopt(World(kubectl, world.first_node, NAMESPACE, CLUSTER), folder, world.notes)
    except Exception:
        evidence.keep(kubectl, [NAMESPACE], folder / "evidence")
        raise
    kubectl("delete", "waltzcluster", CLUSTER, timeout_seconds=WAIT_SECONDS)
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _adopt(here: World, folder: Path, notes: list[str]) -> None:
    old = OldCluster(here.kubectl, folder)
    old.start()
    _secrets(here, old.authority)
    key = old.tool("ZooKeeperCli", "show-cluster-key").split()[-1]
    here.load.start(
        {"zookeeper": release.CONNECT_STRING, "root": release.ROOT, "clientSecret": _CLIENT_SECRET}
    )
    here.load.begin_round(0.05)
    here.kubectl.apply(_example(old, key))
    here.wait_for("Valid", "True", WAIT_SECONDS)
    here.wait_for("ReplicasCaughtUp", "True", WAIT_SECONDS)
    nodes = here.cluster()["status"]["nodes"]
    if [one.get("registered") for one in nodes] != [True] * 3:
        raise AssertionError(f"nodes that are in ZooKeeper are not registered: {nodes}")
    here.load.begin_round(0.05)
    _exchange_servers(here, old)
    notes.append(f"servers exchanged, longest gap {here.load.measured().longest_gap_seconds:.2f} s")
    here.load.begin_round(0.05)
    for number, node in enumerate(release.NODES):
        _exchange_node(here, old, number, node)
    notes.append(f"storage nodes exchanged, longest gap {here.load.measured().longest_gap_seconds:.2f} s")
    _judge(here, old, notes)


def _secrets(here: World, authority: Authority) -> None:
    """Those of `tls.mode: Secret`, and one for our client."""
    namespace = here.kubectl.namespace
    names = {
        "server": (f"*.{CLUSTER}-server.{namespace}.svc", f"{CLUSTER}.{namespace}.svc"),
        "storage": (f"*.{CLUSTER}-storage.{namespace}.svc",),
        "operator": ("operator",),
        "application": ("application",),
    }
    ca = Path(authority.trust_store).read_text()
    for role, hosts in names.items():
        pem = Path(authority.pem(role, *hosts)).read_text()
        key, certificate = pem.split("-----BEGIN CERTIFICATE-----", 1)
        here.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"{CLUSTER}-{role}-certificate" if role in _ROLES else _CLIENT_SECRET},
                "type": "kubernetes.io/tls",
                "stringData": {
                    "ca.crt": ca,
                    "tls.key": key,
                    "tls.crt": f"-----BEGIN CERTIFICATE-----{certificate}",
                },
            }
        )


def _example(old: OldCluster, key: str) -> dict[str, Any]:
    """`manifests/examples/adopt.yaml` with the names of this cluster."""
    body: dict[str, Any] = yaml.safe_load((ROOT / "manifests/examples/adopt.yaml").read_text())
    spec = body["spec"]
    spec["images"] = {role: f"waltz-{role}:{TAG}" for role in spec["images"]}
    spec["zookeeper"] |= {"connectString": release.CONNECT_STRING, "root": release.ROOT, "adoptKey": key}
    for group, node in zip(spec["storage"]["groups"], release.NODES, strict=True):
        group["nodes"][0]["connectString"] = old.address(node)
    small = {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    spec["storage"] |= {"size": "1Gi", "resources": small}
    spec["servers"] = {"drainSeconds": 20, "resources": small}
    return body


def _exchange_servers(here: World, old: OldCluster) -> None:
    here.change(paused=False)
    here.wait_for("Available", "True", WAIT_SECONDS)
    here.settle()
    for name in release.SERVERS:
        old.stop(name)
        here.load.wait_flowing()
        here.settle()


def _exchange_node(here: World, old: OldCluster, number: int, node: str) -> None:
    """A node of this release in the group, the old one drained and taken out, and its process ended."""
    groups = here.cluster()["spec"]["storage"]["groups"]
    external = groups[number]["nodes"][0]
    groups[number]["nodes"] = [external, {"name": "1"}]
    here.change(storage={"groups": groups})
    here.settle()
    here.migrate(f"drain-{number}", drain={"node": f"{number}-0"})
    groups[number]["nodes"] = [{"name": "1"}]
    here.change(storage={"groups": groups})
    here.settle()
    old.stop(node)


def _judge(here: World, old: OldCluster, notes: list[str]) -> None:
    """Our client's judge reads the log; the client of 0.13.2 received each transaction that was reported to
    it as committed once, and ids without gaps."""
    before = old.acknowledged()
    wait_until("the client of 0.13.2 still writes", lambda: old.acknowledged() > before, WAIT_SECONDS)
    verdict = here.load.verdict("start")
    if not verdict["passed"]:
        raise AssertionError(f"the log is not what was acknowledged: {verdict}")
    committed = [rest for kind, rest in _events(old) if kind == "C"]
    time.sleep(2.0)  # what was reported as committed until here is handed over by then
    given: dict[int, list[tuple[int, str]]] = {}
    for rest in (rest for kind, rest in _events(old) if kind == "T"):
        where, transaction_id, payload = rest.split(" ", 2)
        given.setdefault(int(where), []).append((int(transaction_id), payload))
    for partition, log in given.items():
        if [number for number, _ in log] != list(range(len(log))):
            raise AssertionError(f"partition {partition} was not handed over in order, without gaps")
    times = Counter(payload for log in given.values() for _, payload in log)
    wrong = [payload for payload in committed if times[payload] != 1]
    if wrong:
        raise AssertionError(f"of {len(committed)} of the client of 0.13.2 not once in the log: {wrong[:5]}")
    notes.append(f"{len(committed)} acknowledged by 0.13.2's client, all in the log")


def _events(old: OldCluster) -> list[tuple[str, str]]:
    """What the client of 0.13.2 wrote down: a letter, and what it is about."""
    return [(kind, rest) for kind, _, rest in (line.partition(" ") for line in old.journal())]
