"""What of a cluster that is being deleted stays: its volumes, and the Secrets that are needed with them.
Pure.

With Retain all of it stays; with Delete what is not proven to be the cluster's own. A cluster that never had
a key never used a storage volume, and whatever was there before it holds the data of an earlier cluster of
its name: it was refused, or its specification was wrong.

Garbage collection deletes whatever the cluster owns, at once where the deletion is a foreground one: it waits
for no finalizer and knows the reclaim policy of the last pass only. So nothing that holds data is owned by a
cluster that lives, also one that is paused or whose specification is wrong; what an earlier release has left
so is taken out of its ownership. Only at the end of a deletion with Delete the Secrets become its own: the
operator may not delete Secrets, and garbage collection does it.
"""

from __future__ import annotations

from waltz_operator.model.actions import DisownObject, EmitEvent, OwnObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, ObjectKey, PVCView, SecretView


def of_another(facts: Facts, view: PVCView | SecretView) -> bool:
    """Whether it is not proven to be this cluster's: no key was recorded, and it was there before the
    cluster, or is not marked as made for it. That mark alone proves nothing: claims of a managed ZooKeeper
    are taken over before its tree can be read."""
    if facts.memory.cluster_key is not None:
        return False
    marked = facts.desired.uid in (view.cluster, *view.owners)
    return view.created < facts.desired.created or not marked


def still_owned(facts: Facts, kube: KubeView) -> tuple[DisownObject, ...]:
    """What would go with the cluster and is to stay; what is being deleted already cannot be kept so."""
    delete = facts.desired.deleting and facts.desired.reclaim_delete
    found: list[tuple[ObjectKey, PVCView | SecretView]] = [
        *((ObjectKey("PersistentVolumeClaim", name), view) for name, view in sorted(kube.pvcs.items())),
        *((ObjectKey("Secret", name), view) for name, view in sorted(facts.data_secrets.items())),
    ]
    why = "garbage collection is to delete no data"
    if facts.desired.deleting:
        why = (
            "it was there before the cluster"
            if delete
            else "the cluster is deleted with reclaimPolicy Retain"
        )
    return tuple(
        DisownObject(key, view.uid, why)
        for key, view in found
        if facts.desired.uid in view.owners and not view.deleting and (not delete or of_another(facts, view))
    )


def go_with_it(facts: Facts) -> tuple[OwnObject, ...]:
    """With Delete: the Secrets that garbage collection is to delete after the cluster."""
    return tuple(
        OwnObject(ObjectKey("Secret", name), view.uid, "the cluster is deleted with reclaimPolicy Delete")
        for name, view in sorted(facts.data_secrets.items())
        if facts.desired.uid not in view.owners and not view.deleting and not of_another(facts, view)
    )


def cannot_be_kept(facts: Facts, kube: KubeView) -> tuple[EmitEvent, ...]:
    """With Retain: the claims that somebody else has deleted, each with what still saves its data."""
    about = ObjectKey("WaltzCluster", facts.desired.name)
    return tuple(
        EmitEvent(
            about,
            Reason.VOLUME_BEING_DELETED.value,
            f"PersistentVolumeClaim {name} is not kept though reclaimPolicy is Retain: somebody else has deleted it, and "
            "it goes as soon as its pod ends; its data stay only where its PersistentVolume has "
            "persistentVolumeReclaimPolicy Retain: set that now",
            "Warning",
        )
        for name, view in sorted(kube.pvcs.items())
        if view.deleting
    )
