"""Whether an existing object of that name belongs to this cluster. Pure.

Names of objects are made of the cluster's, so another cluster, or a person, may have one of the same name.
What is not the cluster's is never written over, mounted by its pods, or deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waltz_operator.api.metadata import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGED_BY, ObjectMeta


def belongs(obj: Mapping[str, Any], cluster: ObjectMeta) -> bool:
    """Whether the object is this cluster's: the cluster controls it, or it has our label and the one of the
    cluster (volumes that outlive their cluster have no owner)."""
    metadata = obj.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    if any(one.get("controller") and one.get("uid") == cluster.uid for one in owners):
        return True
    labels = metadata.get("labels") or {}
    return labels.get(LABEL_MANAGED_BY) == MANAGED_BY and labels.get(LABEL_INSTANCE) == cluster.name


def of_an_earlier_one(obj: Mapping[str, Any], cluster: ObjectMeta) -> bool:
    """Whether a WaltzCluster with another uid controls the object: one of the same name that is gone, or
    another one. Garbage collection deletes it soon, so nothing may depend on it."""
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    return any(
        one.get("controller") and one.get("kind") == "WaltzCluster" and one.get("uid") != cluster.uid
        for one in owners
    )
