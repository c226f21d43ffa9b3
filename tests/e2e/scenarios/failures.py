"""What nobody planned."""

from __future__ import annotations

import time

from tests.e2e import kind
from tests.e2e.kubectl import wait_until
from tests.e2e.world import SERVERS, STORAGE, WAIT_SECONDS, World

AWAY_SECONDS = 15.0
"""Longer than a session with ZooKeeper: what was on the machine is taken over."""


def kill_pods(world: World) -> None:
    """A storage node, a server and ZooKeeper at once, without notice; each one after another has come
    back."""
    for selector in (STORAGE, SERVERS, STORAGE):
        pod = sorted(world.pods(selector))[0]
        world.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
        time.sleep(1)  # so that the settled state below is not the one of before
        world.settle()


def kill_machine(world: World) -> None:
    """A Kubernetes node loses its power and gets it back: a storage node, perhaps a server, are away
    meanwhile."""
    victim = kind.NODES[1]
    before = _starts(world, victim)
    kind.kill_node(victim)
    try:
        time.sleep(AWAY_SECONDS)
    finally:
        kind.start_node(victim)
    wait_until(f"{victim} is ready", lambda: _node_ready(world, victim), WAIT_SECONDS)
    # Kubernetes may not even have noticed: what it says of these pods is true again once they have started
    # anew.
    wait_until(f"pods on {victim} start again", lambda: not _starts(world, victim) & before, WAIT_SECONDS)
    world.settle()
    world.notes.append(f"{len(before)} pods on it")


def _starts(world: World, node: str) -> set[tuple[str, int]]:
    """Pods of the cluster on a machine, with how often each was started."""
    pods = [one for selector in (STORAGE, SERVERS) for one in world.kubectl.list("pods", selector)]
    return {
        (
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"].get("containerStatuses", [])),
        )
        for pod in pods
        if pod["spec"].get("nodeName") == node
    }


def _node_ready(world: World, name: str) -> bool:
    conditions = world.kubectl.get("node", name)["status"]["conditions"]
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
