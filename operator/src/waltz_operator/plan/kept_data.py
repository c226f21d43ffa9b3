"""What of a cluster that is being deleted stays: its volumes, and the Secrets that are needed with them.
Pure.

With Retain all of it stays; with Delete what is not proven to be the cluster's own. A cluster that never had
a key never used a storage volume, and whatever was there before it holds the data of an earlier cluster of
its name: it was refused, or its specification was wrong.

Garbage collection deletes whatever the cluster owns, and it owns what the last pass before the deletion left:
the reclaim policy may have been another one then. So what stays is taken out of its ownership first.
"""

from __future__ import annotations

from waltz_operator.model.actions import DisownObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import KubeView, ObjectKey, PVCView, SecretView


def of_another(facts: Facts, view: PVCView | SecretView) -> bool:
    """Whether it is not proven to be this cluster's: no key was recorded, and it was there before the
    cluster, or the cluster does not own it. That of a claim alone proves nothing: those of a managed
    ZooKeeper are taken over before its tree can be read."""
    if facts.memory.cluster_key is not None:
        return False
    return view.created < facts.desired.created or facts.desired.uid not in view.owners


def still_owned(facts: Facts, kube: KubeView) -> tuple[DisownObject, ...]:
    """What would go with the cluster and is to stay."""
    delete = facts.desired.reclaim_delete
    found: list[tuple[ObjectKey, PVCView | SecretView]] = [
        *((ObjectKey("PersistentVolumeClaim", name), view) for name, view in sorted(kube.pvcs.items())),
        *((ObjectKey("Secret", name), view) for name, view in sorted(facts.data_secrets.items())),
    ]
    why = "it was there before the cluster" if delete else "the cluster is deleted with reclaimPolicy Retain"
    return tuple(
        DisownObject(key, view.uid, why)
        for key, view in found
        if facts.desired.uid in view.owners and (not delete or of_another(facts, view))
    )
