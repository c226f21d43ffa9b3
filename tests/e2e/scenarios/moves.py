"""Replicas change their node, partitions their server."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.e2e import kind
from tests.e2e.kubectl import wait_until
from tests.e2e.scenarios.growth import groups, set_groups
from tests.e2e.scenarios.rolling import PYTHON
from tests.e2e.world import CLUSTER, SERVERS, STORAGE, WAIT_SECONDS, World
from waltz_operator.api.journal import DIRECTORY

DEADLINE_SECONDS = 15


def move(world: World) -> None:
    """Group 1 gets a second node, and two partitions move there."""
    changed = [{"name": "1", "count": 2} if group["name"] == "1" else group for group in groups(world)]
    set_groups(world, changed)
    world.settle()
    start = time.monotonic()
    status = world.migrate("move", move={"from": "1-0", "to": "1-1", "partitions": [0, 1]})
    world.notes.append(f"moved {status.get('progress', '')} in {time.monotonic() - start:.0f} s")
    world.settle()


def give_up(world: World) -> None:
    """A migration that names a node that is not there fails after its deadline and says why; meanwhile and
    afterwards others work. It can be begun again."""
    spec = {
        "cluster": CLUSTER,
        "move": {"from": "1-0", "to": "1-9"},
        "progressDeadlineSeconds": DEADLINE_SECONDS,
    }
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzMigration",
        "metadata": {"name": "lost"},
        "spec": spec,
    }
    world.kubectl.apply(body)
    world.migrate("meanwhile", rebalance={"group": "1"})
    status = _failed(world)
    if "there is no storage node 1-9" not in status.get("failure", ""):
        raise AssertionError(f"it failed without its reason: {status}")
    world.kubectl("annotate", "waltzmigration/lost", "waltz.dev/retry=1")
    wait_until("it is begun again", lambda: _phase(world) != "Failed", WAIT_SECONDS)
    _failed(world)
    world.kubectl("delete", "waltzmigration", "lost")
    world.settle()


def hot_server(world: World) -> None:
    """The two partitions of one server are hot, the one of the other is not: the hot ones part while they are
    written as fast as they can be, and then all is left alone."""
    before = _owners(world)
    (cold,) = next(had for had in before.values() if len(had) == 1)
    hot = frozenset().union(*before.values()) - {cold}
    wanted = {"windowMinutes": 1, "minimumCpuPercent": 5, "improvementPercent": 10, "cooldownMinutes": 30}
    world.load.begin_round(0.0, rare=(cold,))
    world.change(servers={"rebalance": wanted})
    start = time.monotonic()
    first = wait_until("partitions move by load", lambda: next(iter(_moves(world)), None), WAIT_SECONDS)
    world.notes.append(f"moved after {time.monotonic() - start:.0f} s: {first['message']}")
    wait_until("the hot ones part", lambda: all(had & hot for had in _owners(world).values()), WAIT_SECONDS)
    moves, after = _moves(world), _owners(world)
    if sorted(map(len, after.values())) != [1, 2] or len(moves) > 2:
        raise AssertionError(f"before {before}, moved {moves}, after {after}")
    time.sleep(2.5 * 60)  # more windows: nothing moves back or on
    if _moves(world) != moves or _owners(world) != after:
        raise AssertionError(f"it did not end: {_moves(world)} {_owners(world)}")
    events = [one for one in world.kubectl.list("events", "") if one.get("reason") == "PartitionMoved"]
    if len(events) != len(moves):
        raise AssertionError(f"{len(moves)} partitions moved, {len(events)} Events")
    world.change(servers={"rebalance": None})
    world.settle()


def _moves(world: World) -> list[dict[str, Any]]:
    """Those that were carried out."""
    return [
        one for one in world.cluster()["status"]["servers"].get("moves", []) if one.get("state") == "Done"
    ]


_OWNED = """\
import json, urllib.request
print(json.dumps(json.load(urllib.request.urlopen("http://{host}:55181/health"))))
"""


def _owners(world: World) -> dict[str, frozenset[int]]:
    """Server pod → partitions, as each says. Servers listen on the address of their pod only."""
    found = {}
    for pod in world.kubectl.list("pods", SERVERS):
        name, address = pod["metadata"]["name"], pod["status"]["podIP"]
        host = f"[{address}]" if ":" in address else address
        text = world.kubectl("exec", name, "--", PYTHON, "-c", _OWNED.format(host=host))
        found[name] = frozenset(map(int, json.loads(text)["server-health-check"]["partitions"]))
    return found


def _phase(world: World) -> str:
    return str(world.kubectl.get("waltzmigration", "lost").get("status", {}).get("phase", ""))


def _failed(world: World) -> dict[str, Any]:
    wait_until("the migration fails", lambda: _phase(world) == "Failed", WAIT_SECONDS)
    found: dict[str, Any] = world.kubectl.get("waltzmigration", "lost")["status"]
    return found


def drain(world: World) -> None:
    """The first node of the group, not the last, gives up everything and is taken out."""
    world.migrate("drain", drain={"node": "1-0"})
    wanted = [
        {"name": "1", "nodes": [{"name": "1"}]} if group["name"] == "1" else group for group in groups(world)
    ]
    set_groups(world, wanted)
    gone = f"{CLUSTER}-storage-1-0"
    wait_until(f"{gone} is gone", lambda: world.kubectl.find("statefulset", gone) is None, WAIT_SECONDS)
    world.settle()
    if world.kubectl.find("pvc", f"data-{gone}-0") is None:
        raise AssertionError("the volume of the drained node was deleted under the policy Retain")


def replace_lost_disk(world: World) -> None:
    """A volume is gone for good; the node comes up empty, takes no part, and is filled again when that is
    asked for."""
    pod, claim = f"{CLUSTER}-storage-2-0-0", f"data-{CLUSTER}-storage-2-0-0"
    world.kubectl("delete", "pvc", claim, "--wait=false")
    world.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    wait_until(f"{claim} is made again", lambda: fresh(world, claim), WAIT_SECONDS)
    time.sleep(5)  # empty, and left alone
    world.migrate("replace", replace={"node": "2-0"})
    world.settle()


def replace_lost_journal(world: World) -> None:
    """Nodes that run get volumes for their journals; one of these is lost under a node that was killed. The
    node does not start, which is reported, and it is filled again when that is asked for."""
    before = world.pods(STORAGE)
    world.change(storage={"journal": {"size": "16Mi", "volume": {"size": "64Mi"}}})
    world.wait_replaced(STORAGE, before, WAIT_SECONDS)
    world.settle()
    pod = f"{CLUSTER}-storage-2-0-0"
    claims = {name: claim_uid(world, name) for name in (f"data-{pod}", f"journal-{pod}")}
    machine = world.kubectl.get("pod", pod)["spec"]["nodeName"]
    lose = f"import shutil; shutil.rmtree({DIRECTORY!r})"
    world.kubectl("exec", pod, "--", PYTHON, "-c", lose)
    kind.kill_container(machine, pod)
    start = time.monotonic()
    wait_until("the lost journal is reported", lambda: degraded(world) == "DiskLost", WAIT_SECONDS)
    world.notes.append(f"reported after {time.monotonic() - start:.0f} s")
    start = time.monotonic()
    world.migrate("journal", replace={"node": "2-0"})
    world.notes.append(f"refilled in {time.monotonic() - start:.0f} s")
    world.settle()
    kept = [name for name, uid in claims.items() if claim_uid(world, name) == uid]
    if kept:
        raise AssertionError(f"volumes were not given up: {kept}")


def claim_uid(world: World, name: str) -> str:
    return str(world.kubectl.get("pvc", name)["metadata"]["uid"])


def degraded(world: World) -> str:
    """Its reason, while it is True."""
    conditions = world.cluster().get("status", {}).get("conditions", [])
    found = [one for one in conditions if one["type"] == "Degraded" and one["status"] == "True"]
    return str(found[0]["reason"]) if found else ""


def fresh(world: World, claim: str) -> bool:
    """Whether a claim is there that nobody is deleting."""
    found = world.kubectl.find("pvc", claim)
    return found is not None and "deletionTimestamp" not in found["metadata"]
