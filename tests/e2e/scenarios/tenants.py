"""What one person writes wrong, or deletes, holds up only what it is about."""

from __future__ import annotations

import time
from functools import partial

from tests.e2e.kubectl import wait_until
from tests.e2e.shell import CommandError
from tests.e2e.world import CLUSTER, OPERATOR_NAMESPACE, WAIT_SECONDS, World

BACK_SECONDS = 5.0
OWNED = (
    ("service", CLUSTER),
    ("service", f"{CLUSTER}-storage"),
    ("configmap", f"{CLUSTER}-server"),
    ("secret", f"{CLUSTER}-tls-server"),
    ("poddisruptionbudget", f"{CLUSTER}-storage"),
    ("networkpolicy", f"{CLUSTER}-storage"),
)


def typing_error(world: World) -> None:
    """A field of the servers' pod template that Kubernetes does not know: what else is deleted comes back,
    and the operator's pod lives on."""
    before = _operator_restarts(world)
    world.change(servers={"podTemplate": {"spec": {"nodeSelektor": {"a": "b"}}}})
    wait_until("Degraded names the write", lambda: "nodeSelektor" in _degraded(world), WAIT_SECONDS)
    delete_owned(world)
    world.change(servers={"podTemplate": None})
    world.settle()
    if _operator_restarts(world) != before:
        raise AssertionError("the operator was restarted for what one object made fail")


def delete_owned(world: World) -> None:
    """One object of each kind that holds no data is deleted; each is back soon."""
    slowest = 0.0
    for kind, name in OWNED:
        uid = world.kubectl.get(kind, name)["metadata"]["uid"]
        world.kubectl("delete", kind, name, "--wait=false")
        began = time.monotonic()
        wait_until(f"{kind} {name} is back", partial(another, world, kind, name, uid), WAIT_SECONDS)
        slowest = max(slowest, time.monotonic() - began)
    world.notes.append(f"deleted objects back within {slowest:.1f} s")
    if slowest > BACK_SECONDS:
        raise AssertionError(f"a deleted object was back after {slowest:.1f} s")


def another(world: World, kind: str, name: str, uid: str) -> bool:
    """Whether an object was made again: not the one with `uid`."""
    found = world.kubectl.find(kind, name)
    return found is not None and found["metadata"]["uid"] != uid


def _degraded(world: World) -> str:
    conditions = world.cluster().get("status", {}).get("conditions", [])
    found = [one for one in conditions if one["type"] == "Degraded" and one["status"] == "True"]
    return str(found[0]["message"]) if found else ""


def _operator_restarts(world: World) -> int:
    """Of all its pods; CommandError when there is none."""
    pods = world.kubectl.in_namespace(OPERATOR_NAMESPACE).list(
        "pods", "app.kubernetes.io/name=waltz-operator"
    )
    if not pods:
        raise CommandError("there is no pod of the operator")
    statuses = [one for pod in pods for one in pod.get("status", {}).get("containerStatuses", ())]
    return sum(int(one["restartCount"]) for one in statuses)
