"""The end of a cluster, with both policies; with Retain everything that was acknowledged can be read again
afterwards."""

from __future__ import annotations

from tests.e2e.kubectl import wait_until
from tests.e2e.world import CLUSTER, WAIT_SECONDS, World


def _delete(world: World) -> None:
    world.kubectl("delete", "waltzcluster", CLUSTER, "--wait=false")
    wait_until(
        f"{CLUSTER} is gone", lambda: world.kubectl.find("waltzcluster", CLUSTER) is None, WAIT_SECONDS
    )
    selector = f"app.kubernetes.io/instance={CLUSTER}"
    wait_until("its pods are gone", lambda: not world.kubectl.list("pods", selector), WAIT_SECONDS)


def retain(world: World) -> None:
    """The object goes, volumes stay; the same object again, given the key, has every transaction."""
    before = world.cluster()
    claims = {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in world.kubectl.list("pvc")}
    verdict = world.load.verdict("start")
    _delete(world)
    left = {claim["metadata"]["name"]: claim["metadata"]["uid"] for claim in world.kubectl.list("pvc")}
    if left != claims:
        raise AssertionError(
            f"volumes were deleted under the policy Retain: {sorted(claims.keys() - left.keys())}"
        )
    metadata = {"name": CLUSTER}
    spec = before["spec"]
    spec["zookeeper"]["adoptKey"] = before["status"]["clusterKey"]
    world.kubectl.apply(
        {
            "apiVersion": before["apiVersion"],
            "kind": before["kind"],
            "metadata": metadata,
            "spec": spec,
        }
    )
    world.settle()
    again = world.load.verdict("start")
    if not again["passed"] or again["transactions"] < verdict["transactions"]:
        raise AssertionError(f"the log is not what it was: {again}")
    world.notes.append(f"{again['transactions']} transactions there again")


def delete(world: World) -> None:
    """With the policy Delete nothing stays."""
    world.load.stop()
    world.change(reclaimPolicy="Delete")
    world.settle()  # ZooKeeper's volume follows what its StatefulSet says of it
    _delete(world)
    selector = f"app.kubernetes.io/instance={CLUSTER}"
    wait_until("its volumes are gone", lambda: not world.kubectl.list("pvc", selector), WAIT_SECONDS)
