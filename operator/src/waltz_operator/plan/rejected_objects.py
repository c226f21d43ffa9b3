"""What has to wait because the API server rejected an object that it depends on. Pure.

A workload is not changed when something that its pods mount, or are found by, exists as somebody
else's, does not exist at all, or is a configuration that did not change along with it: its pods would
run on what is not theirs, or come up with the old file and keep it. A volume that only cannot grow, or a
Service that only cannot change, holds up nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from waltz_operator.api.topology import NodeIdentity
from waltz_operator.model.reasons import Reason
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import ObjectKey, Rejection
from waltz_operator.model.texts import first_texts

_SOURCES = (
    ("configMap", "name", "ConfigMap"),
    ("secret", "secretName", "Secret"),
    ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim"),
)


def held_back(objects: Sequence[Rendered], rejected: Mapping[ObjectKey, Rejection]) -> frozenset[ObjectKey]:
    """The rejected objects, and those that must not be changed without them."""
    needed = {key for key, one in rejected.items() if not one.there or key.kind == "ConfigMap"}
    waiting = {one.key for one in objects if needed.intersection(_rests_on(one.body))}
    return frozenset(waiting.union(rejected))


def reported(rejected: Mapping[ObjectKey, Rejection]) -> tuple[Reason, str] | None:
    """For a condition; None when there are none."""
    if not rejected:
        return None
    reason = Reason.REFUSED_CHANGE if any(one.for_good for one in rejected.values()) else Reason.WRITE_FAILED
    return reason, first_texts([one.text for one in rejected.values()])


def refused_volumes(rejected: Mapping[ObjectKey, Rejection]) -> list[str]:
    """The volume claims that the API server does not take for good, a line each: their sizes are part of the
    specification and cannot be done, so that they may be lowered again."""
    return [one.text for key, one in rejected.items() if key.kind == "PersistentVolumeClaim" and one.for_good]


def holds_up(held: frozenset[ObjectKey], node: NodeIdentity) -> bool:
    """Whether a restart of the node would bring it back as it is: what is to change cannot be changed."""
    return ObjectKey("StatefulSet", node.statefulset) in held


def _rests_on(body: Mapping[str, Any]) -> Iterator[ObjectKey]:
    """What a workload's pods mount, and the Service that names them."""
    spec = body.get("spec") or {}
    if "serviceName" in spec:
        yield ObjectKey("Service", str(spec["serviceName"]))
    for one in spec.get("volumeClaimTemplates") or ():
        for number in range(spec.get("replicas") or 0):
            claim = f"{one['metadata']['name']}-{body['metadata']['name']}-{number}"
            yield ObjectKey("PersistentVolumeClaim", claim)
    template = spec.get("template") or {}
    if not isinstance(template, Mapping):
        return
    volumes = (template.get("spec") or {}).get("volumes") or ()
    for volume in (one for one in volumes if isinstance(one, Mapping)):
        for source, name, kind in _SOURCES:
            said = volume.get(source)
            if isinstance(said, Mapping):  # a person's volumes are what they are
                yield ObjectKey(kind, str(said.get(name, "")))
