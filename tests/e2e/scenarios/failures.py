"""What nobody planned."""

from __future__ import annotations

import time

from tests.e2e import kind
from tests.e2e.kubectl import wait_until
from tests.e2e.world import SERVERS, STORAGE, World

AWAY_SECONDS = 25.0


def kill_pods(world: World) -> None:
    """A storage node, a server and ZooKeeper at once, without notice; each one after another has come back."""
    for selector in (STORAGE, SERVERS, STORAGE):
        pod = sorted(world.pods(selector))[0]
        world.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
        time.sleep(1)  # so that the settled state below is not the one of before
        world.settle()


def kill_machine(world: World) -> None:
    """A Kubernetes node loses its power and gets it back: a storage node, perhaps a server, are away meanwhile."""
    victim = kind.NODES[1]
    kind.kill_node(victim)
    try:
        time.sleep(AWAY_SECONDS)
    finally:
        kind.start_node(victim)
    wait_until(f"{victim} is ready", lambda: _node_ready(world, victim), 180)
    world.settle(300)


def _node_ready(world: World, name: str) -> bool:
    conditions = world.kubectl.get("node", name)["status"]["conditions"]
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
