"""Volume claims, of storage nodes and of the managed ZooKeeper: one definition for both.

A claim is an object of its own, so that it outlives its StatefulSet, and grows by a change of the claim. It
never shrinks and keeps its class, whatever the specification says; `impossible_changes` reports that. Nothing
owns it, whatever the reclaim policy: it is deleted by the operator alone, after a proof, since garbage
collection goes by the policy that was applied last and asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from waltz_operator.api.base import quantity_bytes
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import CLUSTER_UID
from waltz_operator.api.validate import Problem
from waltz_operator.resources.common import make
from waltz_operator.resources.inputs import Obj, RenderInputs


def claim(
    cluster: WaltzCluster,
    inputs: RenderInputs,
    component: str,
    name: str,
    size: str,
    class_name: str | None,
    *,
    more: Mapping[str, str] | None = None,
) -> Obj:
    """The claim of that name. `more`: labels by short name."""
    existing = inputs.volumes.get(name)
    if existing is not None:
        class_name = existing.storage_class
        if quantity_bytes(size) < existing.size_bytes:
            size = str(existing.size_bytes)
    return make(
        cluster,
        "v1",
        "PersistentVolumeClaim",
        name,
        component,
        {"spec": claim_spec(size, class_name)},
        annotations={CLUSTER_UID: cluster.metadata.uid},
        owned=False,
        more=more,
    )


def claim_spec(size: str, class_name: str | None) -> Obj:
    """What a claim asks for."""
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if class_name is not None:
        spec["storageClassName"] = class_name
    return spec


def impossible_claim(
    inputs: RenderInputs, path: str, name: str, size: str, class_name: str | None
) -> Iterator[Problem]:
    """What is wanted of a claim that exists and cannot be done. `path`: of the part of the specification."""
    existing = inputs.volumes.get(name)
    if existing is None:
        return
    if quantity_bytes(size) < existing.size_bytes:
        yield Problem(
            f"{path}.size", f"volume {name} has {existing.size_bytes} bytes and cannot shrink to {size}"
        )
    if class_name is not None and class_name != existing.storage_class:
        yield Problem(
            f"{path}.storageClassName",
            f"volume {name} has the class {existing.storage_class}, which cannot become {class_name}: "
            "drain the node and make another one",
        )
