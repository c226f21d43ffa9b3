"""Migrations whose cluster does not exist: which of them the operator still has something to do for.

No pass is made for them, and no watch reports them again: they are looked for in each resynchronisation. One
that is deleted is released, since without a cluster there is nothing to undo; one that is neither deleted nor
over is answered, and worked on as any other when its cluster comes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from waltz_operator.api.metadata import FINALIZER
from waltz_operator.api.migration import MigrationPhase
from waltz_operator.model.reasons import Reason
from waltz_operator.model.task import FINISHED_PHASES
from waltz_operator.model.texts import fitting
from waltz_operator.model.times import timestamp


def cluster_of(body: Mapping[str, Any]) -> str:
    """Name of the cluster that the migration is for, in its own namespace."""
    return str((body.get("spec") or {}).get("cluster") or "")


def to_release(body: Mapping[str, Any]) -> bool:
    """Whether it is deleted and held by our finalizer."""
    metadata = body["metadata"]
    return metadata.get("deletionTimestamp") is not None and FINALIZER in (metadata.get("finalizers") or ())


def without_cluster(body: Mapping[str, Any], at: float) -> dict[str, Any] | None:
    """The status to merge in, `at` that time (UNIX time, seconds). None: it has it already, or needs none."""
    metadata, status = body["metadata"], body.get("status") or {}
    phase = str(status.get("phase") or MigrationPhase.PENDING.value)
    if metadata.get("deletionTimestamp") is not None or phase in FINISHED_PHASES:
        return None
    text = (
        f"there is no WaltzCluster {cluster_of(body)} in this namespace: create it, "
        f"or delete this migration and create one with the right name in spec.cluster"
    )
    conditions = [dict(one) for one in status.get("conditions") or ()]
    last = next((one for one in conditions if one.get("type") == "Blocked"), {})
    since = last.get("lastTransitionTime") if last.get("status") == "True" else None
    blocked = {
        "type": "Blocked",
        "status": "True",
        "reason": Reason.NO_TARGET.value,
        "message": fitting(text),
        "lastTransitionTime": since or timestamp(at),
        "observedGeneration": int(metadata.get("generation") or 0),
    }
    wanted = {
        "phase": phase,
        "reason": Reason.NO_TARGET.value,
        "message": text,
        "etaSeconds": None,
        "conditions": [*(one for one in conditions if one is not last), blocked],
    }
    return None if all(status.get(name) == value for name, value in wanted.items()) else wanted


def waiting(bodies: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Namespace and name of the clusters of those for which something is to be done if it does not exist."""
    for body in bodies:
        if to_release(body) or without_cluster(body, 0.0) is not None:
            yield body["metadata"]["namespace"], cluster_of(body)
