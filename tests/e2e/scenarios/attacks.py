"""What people and machines do to a cluster that nobody would plan, while it is written to."""

from __future__ import annotations

import base64
import time
from functools import partial
from typing import Any

from tests.e2e.kubectl import wait_until
from tests.e2e.scenarios.growth import NEW, groups, set_groups
from tests.e2e.scenarios.moves import fresh
from tests.e2e.scenarios.tenants import another
from tests.e2e.shell import CommandError
from tests.e2e.world import CLUSTER, SERVERS, STORAGE, WAIT_SECONDS, World
from waltz_admin.authority import KeyPair, describe, issue

OWNED_KINDS = (
    "services",
    "endpointslices",
    "configmaps",
    "secrets",
    "poddisruptionbudgets",
    "networkpolicies",
    "deployments",
    "statefulsets",
)
"""Of everything that belongs to a cluster, but for its claims and the pods of its owners."""
CREDENTIALS = f"{CLUSTER}-zookeeper-auth"
OF_THE_CONSOLE = (f"{CLUSTER}-console-token", f"{CLUSTER}-tls-console")
"""Its Secrets stay when it is switched off."""
LABELS = {"app.kubernetes.io/instance": CLUSTER, "app.kubernetes.io/managed-by": "waltz-operator"}
ENDED = ("Completed", "Failed", "Cancelled")
EVERYTHING = f"app.kubernetes.io/instance={CLUSTER}"


def delete_everything_owned(world: World) -> None:
    """Each object of the cluster is deleted, one after another; each is made again, no claim is touched."""
    claims = _claims(world)
    slowest, what = 0.0, ""
    for kind in OWNED_KINDS:
        for name, uid in _owned(world, kind).items():
            if name == CREDENTIALS or name in OF_THE_CONSOLE:
                continue  # nobody can make them again (see `lose_credentials`), or wants them
            world.kubectl("delete", kind, name, "--wait=false")
            began = time.monotonic()
            wait_until(f"{kind} {name} is back", partial(another, world, kind, name, uid), WAIT_SECONDS)
            seconds = time.monotonic() - began
            slowest, what = max((slowest, what), (seconds, f"{kind} {name}"))
        world.settle()
    if _claims(world) != claims:
        raise AssertionError("a claim was deleted or made anew")
    world.notes.append(f"slowest: {what} after {slowest:.1f} s")


def lose_stateful_sets(world: World) -> None:
    """All StatefulSets and the Deployment of the servers are deleted at once."""
    claims = _claims(world)
    pods = world.pods(STORAGE)
    for kind in ("statefulsets", "deployments"):
        world.kubectl("delete", kind, "-l", EVERYTHING, "--wait=false")
    world.wait_replaced(STORAGE, pods, WAIT_SECONDS)
    world.settle()
    if _claims(world) != claims:
        raise AssertionError("a claim was deleted or made anew")


def storm(world: World) -> None:
    """All servers, all storage nodes, and everything at once, are killed without notice, again and again."""
    for selector in (SERVERS, STORAGE, EVERYTHING, STORAGE, SERVERS):
        world.kubectl("delete", "pods", "-l", selector, "--grace-period=0", "--force", "--wait=false")
        time.sleep(3)
    world.settle()


def contradict(world: World) -> None:
    """A migration is deleted in the middle, two others want the opposite of one another, and a third empties
    the node that both speak of: each ends, or names what it waits for, and no copy is lost."""
    away, back = {"from": "1-0", "to": "1-1"}, {"from": "1-1", "to": "1-0"}
    _begin(world, "deleted", move=away)
    wait_until("it has begun", lambda: _phase(world, "deleted") not in ("", "Pending"), WAIT_SECONDS)
    world.kubectl("delete", "waltzmigration", "deleted")
    _begin(world, "away", move=away, progressDeadlineSeconds=60)
    _begin(world, "back", move=back, progressDeadlineSeconds=60)
    _begin(world, "empty", drain={"node": "1-1"}, progressDeadlineSeconds=60)
    names = ("away", "back", "empty")
    wait_until("all have ended", lambda: all(_phase(world, one) in ENDED for one in names), WAIT_SECONDS)
    world.notes.append(", ".join(f"{one}: {_phase(world, one)}" for one in names))
    world.kubectl("delete", "waltzmigration", *names)
    world.settle()


def lose_disks_in_turn(world: World) -> None:
    """One disk after another is lost and filled again: in the end no byte is on the disk that it was written
    to."""
    for node in ("3-0", "2-0"):
        claim = f"data-{CLUSTER}-storage-{node}-0"
        world.kubectl("delete", "pvc", claim, "--wait=false")
        world.kubectl("delete", "pod", f"{CLUSTER}-storage-{node}-0", "--grace-period=0", "--force")
        wait_until(f"{claim} is made again", partial(fresh, world, claim), WAIT_SECONDS)
        world.migrate(f"refill-{node}", replace={"node": node})
        world.settle()
    _judge_from_the_start(world)


def change_of_mind(world: World) -> None:
    """Two groups are added and taken back before they are complete, again and again."""
    wanted = groups(world)
    more = [*wanted, *({"name": name, "count": 1} for name in NEW)]
    for seconds in (2.0, 8.0, 14.0, 20.0):
        set_groups(world, more)
        time.sleep(seconds)
        set_groups(world, wanted)
        time.sleep(seconds / 2)
    world.settle()
    which = f"waltz.dev/group in ({','.join(NEW)})"
    wait_until("their pods have ended", lambda: not world.kubectl.list("pods", which), WAIT_SECONDS)


def expired_certificates(world: World) -> None:
    """Every role has a certificate that expired an hour ago, as after a long time without an operator: it is
    renewed, and the processes take it over."""
    authority = _secret(world, f"{CLUSTER}-tls-ca")
    signer = KeyPair(authority["tls.crt"], authority["tls.key"])
    for role in ("server", "storage"):
        name = f"{CLUSTER}-tls-{role}"
        old = describe(_secret(world, name)["tls.crt"], name)
        stale = issue(signer, role, old.names, time.time() - 7200, 3600)
        data = {"tls.crt": stale.certificate, "tls.key": stale.key}
        coded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        world.kubectl.patch("secret", name, {"data": coded})
        wait_until(f"{name} is renewed", partial(_valid, world, name), WAIT_SECONDS)
    world.settle()


def lose_credentials(world: World) -> None:
    """The Secret with the credentials for ZooKeeper is deleted: nothing stops, and what the page says brings
    it back."""
    world.kubectl("delete", "secret", CREDENTIALS)
    wait_until("Degraded says so", lambda: _reason(world, "Degraded") == "CredentialsLost", WAIT_SECONDS)
    path = "/etc/waltz/zookeeper-auth/auth"
    text = world.kubectl("exec", f"deployment/{CLUSTER}-server", "--", "cat", path)
    world.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": CREDENTIALS, "labels": LABELS},
            "stringData": {"zookeeper.auth": text},
        }
    )
    world.settle()


def _judge_from_the_start(world: World) -> None:
    verdict = world.load.verdict("start")
    if not verdict["passed"]:
        raise AssertionError(f"the log is not what was acknowledged: {verdict}")
    world.notes.append(f"{verdict['transactions']} transactions from the beginning of the log")


def _begin(world: World, name: str, **spec: Any) -> None:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzMigration",
        "metadata": {"name": name},
        "spec": {"cluster": CLUSTER, **spec},
    }
    world.kubectl.apply(body)


def _phase(world: World, name: str) -> str:
    return str(world.kubectl.get("waltzmigration", name).get("status", {}).get("phase", ""))


def _claims(world: World) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in world.kubectl.list("pvc", EVERYTHING)}


def _owned(world: World, kind: str) -> dict[str, str]:
    """Name -> uid of the objects whose owner is the cluster, or that have its label and no owner."""
    found = {}
    for one in world.kubectl.list(kind, EVERYTHING):
        owners = [owner["kind"] for owner in one["metadata"].get("ownerReferences", [])]
        if owners in ([], ["WaltzCluster"]):
            found[one["metadata"]["name"]] = one["metadata"]["uid"]
    return found


def _secret(world: World, name: str) -> dict[str, bytes]:
    data = world.kubectl.get("secret", name).get("data", {})
    return {key: base64.b64decode(value) for key, value in data.items()}


def _valid(world: World, name: str) -> bool:
    try:
        return describe(_secret(world, name)["tls.crt"], name).not_after > time.time()
    except KeyError:
        return False


def _reason(world: World, kind: str) -> str:
    conditions = world.cluster().get("status", {}).get("conditions", [])
    found = [one for one in conditions if one["type"] == kind and one["status"] == "True"]
    if not found:
        raise CommandError(f"{kind} is not True")
    return str(found[0]["reason"])
