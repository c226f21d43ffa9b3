"""The managed ZooKeeper: its data outlive its StatefulSet, it grows, and it is opened to others and closed
again while the cluster is written to."""

from __future__ import annotations

from tests.e2e.kubectl import wait_until
from tests.e2e.world import CLUSTER, WAIT_SECONDS, World

ZOOKEEPER = f"app.kubernetes.io/instance={CLUSTER},app.kubernetes.io/component=zookeeper"
NAME = f"{CLUSTER}-zookeeper"
GROW_TARGET_SECONDS = 3.5
"""The longest pause of writes: storage nodes and servers are replaced meanwhile, and each server of ZooKeeper
is away for less than a session."""


def lose_stateful_set(world: World) -> None:
    """With `reclaimPolicy: Delete`, which took the volumes along before; writes continue afterwards."""
    world.change(reclaimPolicy="Delete")
    world.settle()
    volumes = _volumes(world)
    before = world.pods(ZOOKEEPER)
    world.kubectl("delete", "statefulset", NAME, "--wait=false")
    world.wait_replaced(ZOOKEEPER, before, WAIT_SECONDS)
    world.settle()
    assert _volumes(world) == volumes, "a claim was deleted or made anew"
    world.change(reclaimPolicy="Retain")
    world.settle()


def grow(world: World) -> None:
    """From one server to three, one at a time. The storage nodes and servers are restarted as well, since
    their files name the servers of ZooKeeper; no restart of ZooKeeper may cost a server its partitions."""
    world.load.lap()
    world.change(zookeeper={"managed": {"replicas": 3}})

    def grown() -> bool:
        found = world.kubectl.get("statefulset", NAME)
        members = found["spec"]["template"]["metadata"]["annotations"].get("waltz.dev/zookeeper-members")
        return bool(members == "3" and found["status"].get("readyReplicas") == 3)

    wait_until("ZooKeeper has three servers that serve", grown, WAIT_SECONDS)
    world.settle()
    world.notes.append(f"{len(_volumes(world))} volumes")
    world.notes.append(f"pause {world.load.lap():.2f} s (target {GROW_TARGET_SECONDS:g})")


def open_and_close(world: World) -> None:
    """To everybody, and again only to who has the credentials; the load has them and writes all the time."""
    for authentication, closed in (("None", False), ("Digest", True)):
        world.change(zookeeper={"managed": {"authentication": authentication}})

        def there(wanted: str = authentication, shut: bool = closed) -> bool:
            found = world.cluster()["status"].get("zookeeper") or {}
            login = {"None": "None", "Digest": "Own"}[wanted]
            return found.get("login") == login and (not shut or found.get("closed") is True)

        wait_until(f"ZooKeeper's authentication is {authentication}", there, WAIT_SECONDS)
        world.settle()


def _volumes(world: World) -> dict[str, str]:
    """Name -> uid of its claims."""
    found = world.kubectl.list("persistentvolumeclaims", ZOOKEEPER)
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}
