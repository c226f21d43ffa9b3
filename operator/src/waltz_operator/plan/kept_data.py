"""What goes with a cluster that is deleted, and what of it stays: its volumes, and the Secrets that are
needed with them. Pure.

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
from waltz_operator.model.snapshot import KubeView, ObjectKey, ObjectView, PVCView, SecretView


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
        *((ObjectKey("Secret", name), view) for name, view in sorted(facts.own_secrets.items()) if view.data),
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


def go_with_it(facts: Facts, kube: KubeView) -> tuple[OwnObject, ...]:
    """What garbage collection is to delete after the cluster, and would leave: with Delete the Secrets that
    its data needed; what has lost its owner by a deletion with `--cascade=orphan`."""
    delete = facts.desired.reclaim_delete
    secrets = {ObjectKey("Secret", name): view for name, view in sorted(facts.own_secrets.items())}
    found = [
        *((key, view.uid) for key, view in sorted(kube.objects.items()) if _has_lost_its_owner(key, view)),
        *(
            (key, view.uid)
            for key, view in secrets.items()
            if facts.desired.uid not in view.owners and not view.deleting
            if (delete and not of_another(facts, view) if view.data else not view.owners)
        ),
    ]
    return tuple(OwnObject(key, uid, "the cluster is being deleted") for key, uid in found)


def _has_lost_its_owner(key: ObjectKey, view: ObjectView) -> bool:
    """Whether it is an object that the operator has applied, whose kind the cluster owns, and nobody owns it.
    Jobs are deleted by the operator."""
    if key.kind in ("PersistentVolumeClaim", "Secret", "Job") or not view.applied_hash or view.deleting:
        return False
    return view.body is not None and not (view.body.get("metadata") or {}).get("ownerReferences")


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
