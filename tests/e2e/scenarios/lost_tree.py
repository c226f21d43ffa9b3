"""All of ZooKeeper is lost, claims included: the status says so, nothing is made anew, and what
docs/operator-zookeeper.md says brings the tree back."""

from __future__ import annotations

import base64
import gzip
import re
import sys
from pathlib import Path

from tests.e2e.images import TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.scenarios import rolling
from tests.e2e.scenarios.growth import groups
from tests.e2e.shell import CommandError, run
from tests.e2e.world import CLUSTER, NAMESPACE, SERVERS, WAIT_SECONDS, World

NAME = f"{CLUSTER}-zookeeper"
ZOOKEEPER = f"app.kubernetes.io/instance={CLUSTER},app.kubernetes.io/component=zookeeper"
EXPORTS = f"{NAME}-export"


def rebuild(world: World) -> None:
    """Without any export: the storage nodes say what there was."""
    servers = _lose_everything(world)
    body = world.cluster()
    arguments = ["--name", CLUSTER, "--key", body["status"]["clusterKey"]]
    arguments += ["--partitions", str(body["spec"]["partitions"]), "--copies", str(len(groups(world)))]
    for number, node in enumerate(body["status"]["nodes"]):
        group = node["name"].split("-")[0]
        identifier = int(group) if group.isdigit() else number
        arguments += ["--node", f"{node['connectString']}/55281/{identifier}"]
    world.notes.append(_waltz(world, "zk", "rebuild", *arguments, "--yes").strip().splitlines()[-1])
    _start_again(world, servers)


def bring_back(world: World) -> None:
    """From the newest export in the Secret, which is older than the sessions that began since."""
    world.kubectl("delete", "secret", EXPORTS, "--ignore-not-found")  # of a tree that has been replaced
    world.change(zookeeper={"export": {"intervalHours": 1, "keep": 2}})
    wait_until("there is an export", lambda: world.kubectl.find("secret", EXPORTS), WAIT_SECONDS)
    exported = wait_until("the export is written", lambda: _newest_export(world), WAIT_SECONDS)
    rolling.restart_servers(world)
    servers = _lose_everything(world)
    script = "cat >/tmp/tree.json && waltz zk import /tmp/tree.json --yes"
    said = _shell(world, "sh", "-c", script, text=exported)
    older = re.search(r"accept-restored -p ([\d,-]+)", said)
    if older is None:
        raise AssertionError(f"sessions began since the export, and the import does not say so: {said}")
    _waltz(world, "zk", "accept-restored", "-p", older[1])
    world.notes.append(f"older: partitions {older[1]}")
    _start_again(world, servers)
    _restart_application(world)
    world.change(zookeeper={"export": None})
    world.settle()


def _restart_application(world: World) -> None:
    """Clients wait that have seen later generations than those of the export: the page says to restart
    them. What they knew was judged before; from now on the new one's appends are."""
    world.load.stop()
    world.load.start(world.cluster()["status"]["endpoints"])
    world.notes.append("the application was restarted")


def _lose_everything(world: World) -> int:
    """ZooKeeper's StatefulSet and its claims; how many servers there were. Returns when none is left."""
    servers = int(world.cluster()["spec"]["servers"]["replicas"])
    before = _claims(world)
    world.kubectl("delete", "statefulset", NAME, "--wait=false")
    world.kubectl("delete", "pvc", "-l", ZOOKEEPER, "--wait=false")
    world.kubectl("delete", "pods", "-l", ZOOKEEPER, "--grace-period=0", "--force", "--wait=false")
    wait_until("its claims are made anew", lambda: not before & _claims(world), WAIT_SECONDS)
    wait_until("Degraded says TreeLost", lambda: _is_lost(world), WAIT_SECONDS)
    world.change(servers={"replicas": 0})
    wait_until("the servers have stopped", lambda: not world.kubectl.list("pods", SERVERS), WAIT_SECONDS)
    return servers


def _start_again(world: World, servers: int) -> None:
    world.change(servers={"replicas": servers})
    world.settle()
    verdict = world.load.verdict("start")
    if not verdict["passed"]:
        raise AssertionError(f"the log is not what was acknowledged: {verdict}")
    world.notes.append(f"{verdict['transactions']} transactions from the beginning of the log")


def _claims(world: World) -> set[str]:
    return {one["metadata"]["uid"] for one in world.kubectl.list("persistentvolumeclaims", ZOOKEEPER)}


def _is_lost(world: World) -> bool:
    conditions = {one["type"]: one for one in world.cluster()["status"]["conditions"]}
    found = [(conditions[kind]["status"], conditions[kind]["reason"]) for kind in ("Degraded", "Valid")]
    return found == [("True", "TreeLost"), ("False", "TreeLost")]


def _newest_export(world: World) -> str | None:
    data = world.kubectl.get("secret", EXPORTS).get("data") or {}
    if not data:
        return None
    return gzip.decompress(base64.b64decode(data[max(data)])).decode()


def _waltz(world: World, *arguments: str) -> str:
    return _shell(world, "waltz", *arguments)


def _shell(world: World, *command: str, text: str = "") -> str:
    """Run a command in the pod of `waltz k8s shell --admin`. CommandError."""
    program = str(Path(sys.executable).parent / "waltz")
    options = ["--namespace", NAMESPACE, "--kubeconfig", str(world.kubectl.kubeconfig), "--timeout", "300"]
    line = [program, "k8s", "shell", CLUSTER, "--admin", "--image", f"waltz-tools:{TAG}", *options, "--"]
    try:
        return run([*line, *command], text=text, timeout_seconds=400.0)
    except CommandError as error:
        raise AssertionError(f"{' '.join(command[:3])}: {error}") from error
