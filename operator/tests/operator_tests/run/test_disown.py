"""What is to outlive its cluster is taken out of the cluster's ownership, and of nobody else's; what is to go
with it gets into it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.resources.clusters import UID, cluster
from operator_tests.run.test_whose_object import LABELS, observation, stands
from waltz_operator.api.metadata import CLUSTER_UID
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeConflictError
from waltz_operator.model.actions import DisownObject, OwnObject
from waltz_operator.model.snapshot import ObjectKey, SecretView
from waltz_operator.run.own_secrets import own_secrets
from waltz_operator.run.write_kubernetes import KubernetesWriter

CLAIM = ObjectKey("PersistentVolumeClaim", "ledger")
OTHER = {"kind": "Backup", "uid": "other"}


async def disown(server: ObjectsKube, uid: str = "live") -> None:
    writer = KubernetesWriter(server, cast("Any", None), cast("Any", None))
    await writer.carry_out(DisownObject(CLAIM, uid, "kept"), observation())


def owned(*owners: Object) -> Object:
    found = stands("PersistentVolumeClaim", owner=UID)
    found["metadata"]["ownerReferences"] += owners
    return found


async def test_other_owners_stay_and_the_version_that_was_read_is_the_precondition() -> None:
    server = ObjectsKube(owned(OTHER))
    await disown(server)
    assert server.writes == [("patch", *CLAIM)]
    assert server.patched == [{"metadata": {"resourceVersion": "5", "ownerReferences": [OTHER]}}]


async def test_nothing_is_written_where_the_cluster_owns_nothing() -> None:
    server = ObjectsKube(stands("PersistentVolumeClaim", owner="another-cluster"))
    await disown(server)
    await disown(ObjectsKube())
    assert server.writes == []


async def own(server: ObjectsKube) -> None:
    writer = KubernetesWriter(server, cast("Any", None), cast("Any", None))
    await writer.carry_out(OwnObject(CLAIM, "live", "goes"), observation())


@pytest.mark.parametrize("controlled", [False, True])
async def test_what_goes_with_the_cluster_gets_it_as_an_owner_once(controlled: bool) -> None:
    server = ObjectsKube(stands("PersistentVolumeClaim"))
    other = {**OTHER, "controller": controlled}
    server.objects[CLAIM]["metadata"]["ownerReferences"] = [other]
    await own(server)
    (patch,) = server.patched
    kept, ours = patch["metadata"]["ownerReferences"]
    assert (kept, ours["uid"], ours["controller"]) == (other, UID, not controlled)
    assert patch["metadata"]["resourceVersion"] == "5"
    already = ObjectsKube(owned())
    await own(already)
    assert already.writes == []


async def test_another_object_of_that_name_is_a_conflict() -> None:
    with pytest.raises(KubeConflictError, match="another one by now"):
        await disown(ObjectsKube(owned()), "seen")


async def test_the_secrets_that_stay_are_looked_for() -> None:
    mine = stands("Secret", "ledger-zookeeper-auth", owner=UID, **LABELS)
    mine["metadata"] |= {"creationTimestamp": "1970-01-01T00:00:07Z", "annotations": {CLUSTER_UID: "u"}}
    server = ObjectsKube(mine, stands("Secret", "ledger-zookeeper-export"))
    seen = SecretView("live", (UID,), 7.0, "u")
    assert await own_secrets(server, cluster()) == {"ledger-zookeeper-auth": seen}


async def test_of_a_cluster_that_is_deleted_the_others_are_looked_for_too() -> None:
    """A certificate of cert-manager, or of a person, is theirs."""
    names = ("ledger-tls-ca", "ledger-tls-server", "ledger-console-token", "ledger-zookeeper-export")
    server = ObjectsKube(*(stands("Secret", name, **LABELS) for name in names))
    for mode, found in (("SelfSigned", names), ("Disabled", names[2:])):
        live = cluster({"tls": {"mode": mode}})
        gone = live.metadata.model_copy(update={"deletion_timestamp": "2026-01-01T00:00:00Z"})
        seen = await own_secrets(server, live._replace(metadata=gone))
        assert set(seen) == set(found)
        assert [name for name, view in seen.items() if view.data] == ["ledger-zookeeper-export"]
