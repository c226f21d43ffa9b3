"""What nobody planned."""

from __future__ import annotations

import time
from functools import partial

from tests.e2e import kind
from tests.e2e.kubectl import wait_until
from tests.e2e.scenarios.moves import fresh
from tests.e2e.world import SERVERS, STORAGE, WAIT_SECONDS, World

AWAY_SECONDS = 15.0
"""Longer than a session with ZooKeeper: what was on the machine is taken over."""
GONE_TARGET_SECONDS = 3.5
"""The longest pause of writes while the machine is away: servers watch each other with a timeout of 2 s."""
SESSION_SECONDS = 10.0
"""With ZooKeeper: whoever pauses for so long was not watched."""


def kill_pods(world: World) -> None:
    """A storage node, a server and ZooKeeper at once, without notice; each one after another has come
    back."""
    for selector in (STORAGE, SERVERS, STORAGE):
        pod = sorted(world.pods(selector))[0]
        world.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
        time.sleep(1)  # so that the settled state below is not the one of before
        world.settle()


def kill_machine(world: World) -> None:
    """A Kubernetes node loses its power and gets it back: one of the two servers and the storage nodes on it
    are away meanwhile. ZooKeeper and the load are on another machine, so nothing but the take-over by the
    other server limits the pause of writes. It is shown beside its target, and has to be shorter than the
    session that would have had to run out."""
    victim = _with_one_server(world)
    before = _starts(world, victim)
    world.load.lap()
    kind.kill_node(victim)
    try:
        time.sleep(AWAY_SECONDS)
        away = world.load.lap()
    finally:
        kind.start_node(victim)
    wait_until(f"{victim} is ready", lambda: _node_ready(world, victim), WAIT_SECONDS)
    # Kubernetes may not even have noticed: what it says of these pods is true again once they have started
    # anew.
    wait_until(f"pods on {victim} start again", lambda: not _starts(world, victim) & before, WAIT_SECONDS)
    world.settle()
    world.notes.append(f"{len(before)} pods on it, one of the {len(world.pods(SERVERS))} servers among them")
    world.notes.append(f"away {away:.2f} s (target {GONE_TARGET_SECONDS:g}), return {world.load.lap():.2f} s")
    if away > SESSION_SECONDS:
        raise AssertionError(f"writes paused for {away:.2f} s when the machine was gone")


def _with_one_server(world: World) -> str:
    """A machine other than the first with a server on it. AssertionError when servers share a machine: its
    loss would stop all writes until it is back."""
    names = [str(pod["spec"].get("nodeName")) for pod in world.kubectl.list("pods", SERVERS)]
    if len(set(names)) < len(names):
        raise AssertionError(f"there are {len(kind.NODES)} machines, and the servers are on {sorted(names)}")
    return next(name for name in sorted(names) if name != world.first_node)


def drain_machine(world: World) -> None:
    """`kubectl drain`: servers hand over, one storage node is away, and all is back when the machine takes
    pods again."""
    victim = kind.NODES[2]
    world.kubectl(
        "drain", victim, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=300s"
    )
    world.wait_for("Available", "True", WAIT_SECONDS)
    world.kubectl("uncordon", victim)
    world.settle()


def lose_machine(world: World) -> None:
    """A Kubernetes node is gone for good, with the volume on it: what docs/operator-changes.md says puts the
    copies on another one."""
    everywhere = world.kubectl.list("pods", STORAGE)
    held = {
        node: [pod for pod in everywhere if pod["spec"].get("nodeName") == node] for node in kind.NODES[1:]
    }
    victim = next((node for node, pods in held.items() if len(pods) == 1), None)
    if victim is None:
        raise AssertionError(f"no machine but the first has one storage node: {sorted(held)}")
    lost = held[victim]
    kind.kill_node(victim)
    try:
        world.kubectl("delete", "node", victim, "--wait=false")
        for pod in lost:
            name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
            node = f"{labels['waltz.dev/group']}-{labels['waltz.dev/node']}"
            claims = [
                volume["persistentVolumeClaim"]["claimName"]
                for volume in pod["spec"]["volumes"]
                if "persistentVolumeClaim" in volume
            ]
            world.kubectl("delete", "pvc", *claims, "--wait=false")
            world.kubectl("delete", "pod", name, "--force", "--grace-period=0")
            for claim in claims:
                wait_until(f"{claim} is made again", partial(fresh, world, claim), WAIT_SECONDS)
            world.migrate(f"elsewhere-{node}", replace={"node": node})
        world.settle()
    finally:
        kind.start_node(victim)
    wait_until(f"{victim} is ready", lambda: _node_ready(world, victim), WAIT_SECONDS)
    world.settle()
    world.notes.append(f"{len(lost)} storage node was on it")


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
