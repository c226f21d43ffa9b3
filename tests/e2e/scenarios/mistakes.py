"""What people ask for and cannot have, or take back in the middle: writes continue, and putting it right is
all that is needed."""

from __future__ import annotations

import time
from typing import Any

from tests.e2e.images import NEXT_TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.shell import CommandError
from tests.e2e.world import CLUSTER, NAMESPACE, SERVERS, STORAGE, WAIT_SECONDS, World

MISSING = "waltz-storage:no-such-image"
QUOTA = "no-more-pods"
HELD_SECONDS = 10.0
"""How long a mistake lasts before it is put right: some passes of the operator."""


def missing_image(world: World) -> None:
    """Storage nodes are to have an image that nobody can pull: one waits for it and no other is touched, its
    machine can be drained, and the image of before repairs it."""
    good, before = _image(world), world.pods(STORAGE)
    world.change(images={"storage": MISSING})
    broken = wait_until("a pod waits for its image", lambda: _waiting(world), WAIT_SECONDS)
    wait_until("Degraded says so", lambda: _reason(world, "Degraded") == "PodStuck", WAIT_SECONDS)
    machine = world.kubectl.get("pod", broken)["spec"]["nodeName"]
    only = f"--pod-selector={STORAGE}"
    try:
        world.kubectl("drain", machine, only, "--delete-emptydir-data", "--force", "--timeout=120s")
    finally:
        world.kubectl("uncordon", machine)
    time.sleep(HELD_SECONDS)
    touched = {name for name, uid in world.pods(STORAGE).items() if before.get(name) != uid}
    if touched - {broken}:
        raise AssertionError(f"while {broken} cannot run, {sorted(touched)} were restarted")
    world.change(images={"storage": good})
    world.settle()
    world.notes.append(f"{broken} waited")


def flip(world: World) -> None:
    """Another image and back in the middle of the roll, with a server rolled at the same time: in the end all
    pods run what they ran before."""
    good = dict(world.cluster()["spec"]["images"])
    there = {role: f"waltz-{role}:{NEXT_TAG}" for role in ("storage", "server")}
    back = {role: good[role] for role in there}
    if back == there:
        raise AssertionError("there is no other image to go to")
    world.change(images=there)
    wait_until("the first pod has it", lambda: there["storage"] in _images(world, STORAGE), WAIT_SECONDS)
    world.change(images=back)
    world.settle()
    for role, selector in (("storage", STORAGE), ("server", SERVERS)):
        found = _images(world, selector)
        if found != {back[role]}:
            raise AssertionError(f"{role} pods run {sorted(found)}")


def impossible_size(world: World) -> None:
    """A size that the storage class refuses, together with a change that can be made: that one is made, and
    the size can be set back."""
    marks = {"metadata": {"annotations": {"waltz.dev/e2e": str(time.time())}}}
    before = world.pods(SERVERS)
    world.change(storage={"size": "2Gi"}, servers={"podTemplate": marks})
    wait_until("Valid says so", lambda: _reason(world, "Valid", "False") == "RefusedChange", WAIT_SECONDS)
    world.wait_replaced(SERVERS, before, WAIT_SECONDS)
    world.change(storage={"size": "1Gi"}, servers={"podTemplate": None})
    world.settle()
    if world.condition("Valid") != "True":
        raise AssertionError("the size was set back, and Valid is not True")


def exhausted_quota(world: World) -> None:
    """The namespace has no more pods to give while a storage node, a server and a copy job need one."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA},
        "spec": {"hard": {"pods": "1"}},
    }
    world.kubectl.apply(quota)
    try:
        wait_until(
            "the quota holds", lambda: "hard" in world.kubectl.get("resourcequota", QUOTA)["status"], 60
        )
        for selector in (STORAGE, SERVERS):
            world.kubectl("delete", "pod", sorted(world.pods(selector))[-1], "--wait=false")
        wait_until("Degraded is True", lambda: world.condition("Degraded") == "True", WAIT_SECONDS)
        time.sleep(HELD_SECONDS)
    finally:
        world.kubectl("delete", "resourcequota", QUOTA)
    world.settle()


def names_are_gone(world: World) -> None:
    """The DNS of the Kubernetes cluster does not answer for a while: who is connected stays so."""
    system = world.kubectl.in_namespace("kube-system")
    wanted = str(system.get("deployment", "coredns")["spec"]["replicas"])
    system("scale", "deployment", "coredns", "--replicas=0")
    try:
        wait_until("DNS is gone", lambda: not system.list("pods", "k8s-app=kube-dns"), WAIT_SECONDS)
        time.sleep(HELD_SECONDS)
        world.kubectl("delete", "endpointslices", "-l", f"app.kubernetes.io/instance={CLUSTER}")
        time.sleep(HELD_SECONDS)
    finally:
        system("scale", "deployment", "coredns", f"--replicas={wanted}")
    system("rollout", "status", "deployment/coredns", "--timeout=300s")
    world.settle()


def _image(world: World) -> str:
    return str(world.cluster()["spec"]["images"]["storage"])


def _images(world: World, selector: str) -> set[str]:
    pods: list[dict[str, Any]] = world.kubectl.list("pods", selector)
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def _waiting(world: World) -> str | None:
    """Name of the pod of a storage node that waits for its image."""
    for pod in world.kubectl.list("pods", STORAGE):
        for one in pod.get("status", {}).get("containerStatuses", ()):
            if "Image" in (one["state"].get("waiting") or {}).get("reason", ""):
                return str(pod["metadata"]["name"])
    return None


def _reason(world: World, kind: str, status: str = "True") -> str:
    conditions = world.cluster().get("status", {}).get("conditions", [])
    found = [one for one in conditions if one["type"] == kind and one["status"] == status]
    if not found:
        raise CommandError(f"{kind} of {NAMESPACE}/{CLUSTER} is not {status}")
    return str(found[0]["reason"])
