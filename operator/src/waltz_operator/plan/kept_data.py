"""What of a cluster that is being deleted stays: its volumes, and the Secrets that are needed with them. Pure.

Garbage collection deletes whatever the cluster owns, and it owns what the last pass before the deletion left:
the reclaim policy may have been another one then. So what stays is taken out of its ownership first.
"""

from __future__ import annotations

from waltz_operator.model.actions import DisownObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import KubeView, ObjectKey, PVCView, SecretView


def still_owned(facts: Facts, kube: KubeView) -> tuple[DisownObject, ...]:
    """What would go with the cluster and is to stay."""
    if facts.desired.reclaim_delete:
        return ()
    found: list[tuple[ObjectKey, PVCView | SecretView]] = [
        *((ObjectKey("PersistentVolumeClaim", name), view) for name, view in sorted(kube.pvcs.items())),
        *((ObjectKey("Secret", name), view) for name, view in sorted(facts.data_secrets.items())),
    ]
    return tuple(
        DisownObject(key, view.uid, "the cluster is deleted with reclaimPolicy Retain")
        for key, view in found
        if facts.desired.uid in view.owners
    )
