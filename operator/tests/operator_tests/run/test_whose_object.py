"""An object of the right name that is not the cluster's is never written over; what is written over is
exactly what was looked at."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.plan.cluster import facts, kube, rendered
from operator_tests.resources.clusters import UID, cluster
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeConflictError, KubeError
from waltz_operator.model.actions import ApplyObject, StartCopyJob
from waltz_operator.model.snapshot import ObjectKey, Snapshot, Unknown
from waltz_operator.plan.certificates import certificate_steps
from waltz_operator.plan.cluster import decide
from waltz_operator.run.access import Access
from waltz_operator.run.observe import Observation, Observer
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.run.write_kubernetes import KubernetesWriter
from waltz_operator.run.zookeeper_sessions import Ensemble, Ensembles

LABELS = {"app.kubernetes.io/instance": "ledger", "app.kubernetes.io/managed-by": "waltz-operator"}
FOREIGN = "ledger exists and does not belong to this cluster: rename the cluster, or move that object away"


def stands(kind: str, name: str = "ledger", *, owner: str = "", **labels: str) -> Object:
    metadata: dict[str, Any] = {"name": name, "uid": "live", "resourceVersion": "5", "labels": labels}
    if owner:
        metadata["ownerReferences"] = [{"kind": "WaltzCluster", "uid": owner, "controller": True}]
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def observation(of: WaltzCluster | None = None) -> Observation:
    nothing = Unknown("not looked at")
    snapshot = Snapshot(of or cluster({"tls": {"mode": "Disabled"}}), nothing, nothing, {}, {}, 0.0)
    return Observation(snapshot, Access(nothing, None), {})


async def apply(server: ObjectsKube, kind: str, *, uid: str = "") -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "ledger", "namespace": "demo"}}
    action = ApplyObject(ObjectKey(kind, "ledger"), body, "it is not there", uid)
    await KubernetesWriter(server, cast("Any", None), cast("Any", None)).carry_out(action, observation())


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "PersistentVolumeClaim"])
async def test_somebody_elses_object_is_not_taken_over(kind: str) -> None:
    for live in (
        stands(kind),
        stands(kind, owner="another-cluster"),
        stands(kind, **{**LABELS, "app.kubernetes.io/instance": "ledger-storage"}),
        stands(kind, **{"app.kubernetes.io/instance": "ledger"}),
    ):
        server = ObjectsKube(live)
        with pytest.raises(KubeError, match=f"^{kind} {FOREIGN}$") as caught:
            await apply(server, kind)
        assert not caught.value.retriable
        assert server.writes == []


async def test_what_is_not_there_is_made() -> None:
    server = ObjectsKube()
    await apply(server, "Service")
    assert "uid" not in server.applied[0]["metadata"]


@pytest.mark.parametrize("live", [stands("Service", owner=UID), stands("Service", **LABELS)])
async def test_our_own_that_the_look_missed_is_written_under_its_uid(live: Object) -> None:
    server = ObjectsKube(live)
    await apply(server, "Service")
    assert server.applied[0]["metadata"]["uid"] == "live"


async def test_what_the_look_showed_is_written_under_that_uid() -> None:
    server = ObjectsKube(stands("Service"))  # another one by now: the API server compares
    await apply(server, "Service", uid="seen")
    assert server.applied[0]["metadata"]["uid"] == "seen"


def test_the_planner_says_which_object_it_saw() -> None:
    found = facts(kube())
    applies = [one for one in decide(found, rendered(template="t2")).actions if isinstance(one, ApplyObject)]
    assert {one.uid for one in applies} == {"s"}
    assert all(one.uid == "" for one in decide(facts(kube(nodes=(0, 1))), rendered()).actions
               if isinstance(one, ApplyObject) and one.key.name.startswith(("s2", "data-s2")))  # fmt: skip


async def test_a_job_of_somebody_else_is_said() -> None:
    server = ObjectsKube(stands("Job"))
    hand = KubernetesWriter(
        server, cast("Any", None), lambda *_: {"kind": "Job", "metadata": {"name": "ledger"}}
    )
    start = StartCopyJob("ledger", "m", 0, "a:1", 2, "b:1", 2, 0)
    with pytest.raises(KubeError, match=f"^Job {FOREIGN}$"):
        await hand.carry_out(start, observation())
    server.objects["Job", "ledger"]["metadata"]["labels"] = LABELS
    await hand.carry_out(start, observation())


# ---- Secrets of TLS


def secret(name: str, **labels: str) -> Object:
    data = {key: base64.b64encode(b"a person's").decode() for key in ("tls.crt", "tls.key", "ca.crt")}
    return {**stands("Secret", name, **labels), "data": data}


async def access(of: WaltzCluster, *secrets: Object) -> Access:
    files = TlsFiles()
    try:
        observer = Observer(ObjectsKube(*secrets), cast("Any", None), files, lambda: 0.0)
        return await observer.access(of)
    finally:
        files.close()


async def test_a_deletion_keeps_the_credentials_that_went_with_the_namespace() -> None:
    """Kubernetes deletes all Secrets of a namespace at once, and makes no other ones there; the tree is
    deleted later. A cluster that lives is to notice."""
    spec = {
        "zookeeper": {"managed": None, "connectString": "zk:2181", "auth": {"secretName": "zk"}},
        "tls": {"mode": "Disabled"},
    }
    live = cluster(spec)
    gone = live.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
    credentials = {
        "kind": "Secret",
        "metadata": {"name": "zk"},
        "data": {"auth": base64.b64encode(b"u:p\n").decode()},
    }

    async def connect(_settings: ZooKeeperSettings) -> ZooKeeperStore:
        return MemoryZooKeeper().session(10.0)

    server, ensembles, files = ObjectsKube(credentials), Ensembles(connect), TlsFiles()
    try:
        observer = Observer(server, ensembles, files, lambda: 0.0)
        found = (await observer.access(live)).ensemble
        assert isinstance(found, Ensemble)
        assert found.credentials == "u:p"
        await ensembles.store((live.metadata.namespace, live.metadata.name), found)
        server.objects.clear()
        assert isinstance((await observer.access(live)).ensemble, Unknown)
        assert (await observer.access(live._replace(metadata=gone))).ensemble == found
        other = Observer(server, Ensembles(connect), files, lambda: 0.0)
        assert isinstance((await other.access(live._replace(metadata=gone))).ensemble, Unknown)
    finally:
        files.close()
        await ensembles.close()


async def test_a_secret_of_somebody_else_is_neither_used_nor_written_over() -> None:
    of = cluster()
    found = await access(of, secret("ledger-tls-ca"), secret("ledger-tls-storage"))
    assert not found.secrets.contents["storage"]
    assert not found.secrets.contents["ledger-tls-ca"]
    (step,) = (
        one
        for one in certificate_steps(of, found.secrets, 0.0, settled=False)
        if isinstance(one, ApplyObject)
    )
    server = ObjectsKube(secret("ledger-tls-ca"))
    hand = KubernetesWriter(server, cast("Any", None), cast("Any", None))
    with pytest.raises(KubeError, match=r"^Secret ledger-tls-ca exists and does not belong to this cluster"):
        await hand.carry_out(step, observation(of))
    assert server.objects["Secret", "ledger-tls-ca"]["data"] == secret("ledger-tls-ca")["data"]


async def test_our_own_secrets_are_used() -> None:
    found = await access(cluster(), secret("ledger-tls-storage", **LABELS))
    assert found.secrets.contents["storage"]
    assert found.secrets.versions["storage"] == "5"


def of_an_earlier_one(name: str) -> Object:
    """The WaltzCluster of this name was deleted and made again; garbage collection has not been there yet."""
    found = secret(name, **LABELS)
    owner = {"kind": "WaltzCluster", "name": "ledger", "uid": "earlier", "controller": True}
    found["metadata"]["ownerReferences"] = [owner]
    return found


async def test_secrets_that_go_with_an_earlier_cluster_do_not_count() -> None:
    """Those of a role would be used, and lost with everything that trusts them."""
    of = cluster()
    names = ("ledger-tls-ca", "ledger-tls-storage", "ledger-zookeeper-auth")
    found = await access(of, *map(of_an_earlier_one, names))
    assert not found.secrets.contents["storage"]
    assert not found.secrets.contents["ledger-tls-ca"]
    assert not found.secrets.versions
    assert not found.login.version


async def test_until_it_is_gone_it_is_a_conflict_that_passes() -> None:
    of = cluster()
    earlier = of_an_earlier_one("ledger-tls-ca")
    found = await access(of, earlier)
    step = certificate_steps(of, found.secrets, 0.0, settled=False)[0]
    assert isinstance(step, ApplyObject)
    server = ObjectsKube(earlier)
    hand = KubernetesWriter(server, cast("Any", None), cast("Any", None))
    with pytest.raises(KubeConflictError, match="earlier cluster"):
        await hand.carry_out(step, observation(of))
    assert server.objects["Secret", "ledger-tls-ca"]["data"] == earlier["data"]
    del server.objects["Secret", "ledger-tls-ca"]
    await hand.carry_out(step, observation(of))
    owners = server.objects["Secret", "ledger-tls-ca"]["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owners] == [UID]


async def test_a_persons_secrets_are_used_in_the_mode_for_that() -> None:
    names = {"server": "own-server", "storage": "own-storage", "operator": "own-operator"}
    of = cluster({"tls": {"mode": "Secret", "secrets": names}})
    assert (await access(of, secret("own-storage"))).secrets.contents["storage"]
