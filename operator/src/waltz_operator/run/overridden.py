"""What the API server has made of written objects in which not all was stored as it was written: admission
webhooks change fields, and a field whose feature is switched off is dropped.

Such an object would be written in every pass, and nothing else would be done. So what the answer to a write
shows is remembered, and the planners take an object that is still like that for written (`plan.diff`). After
`AGAIN_SECONDS` it is written once more, since the webhook may be gone. An operator that starts anew writes
each of them once.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from waltz_operator.api.metadata import APPLIED_HASH
from waltz_operator.kube.client import Kube, Object
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.kube.kinds import Kind
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.snapshot import ObjectKey, Override
from waltz_operator.plan.diff import overrides

AGAIN_SECONDS = 3600.0

Overridden = MutableMapping[ObjectKey, Override]
"""Of one cluster. Bounded by its objects."""


def remember(known: Overridden, action: ApplyObject, stored: Mapping[str, Any], now: float) -> None:
    """What a write came to. Objects without a digest are not compared with what is there."""
    digest = (action.body["metadata"].get("annotations") or {}).get(APPLIED_HASH)
    fields = overrides(action.body, stored) if digest is not None else ()
    if fields:
        known[action.key] = Override(str(stored["metadata"]["uid"]), str(digest), fields, now)
    else:
        known.pop(action.key, None)


def recent(known: Overridden, now: float) -> dict[ObjectKey, Override]:
    """Those that are not due to be written once more."""
    return {key: one for key, one in known.items() if 0.0 <= now - one.at < AGAIN_SECONDS}


async def found_by_name(
    kube: Kube, namespace: str, known: Overridden, kind: Kind, listed: list[Object]
) -> list[Object]:
    """Overridden objects that a list by labels does not show because one of these labels is not what was
    written. What is gone is forgotten. KubeError."""
    shown = {str(one["metadata"]["name"]) for one in listed}
    found = []
    for key, one in list(known.items()):
        if key.kind != kind.kind or key.name in shown:
            continue
        try:
            body = await kube.get(kind, namespace, key.name)
        except KubeNotFoundError:
            body = {}
        if body and body["metadata"]["uid"] == one.uid:
            body["metadata"].pop("managedFields", None)
            found.append(body)
        else:
            del known[key]
    return found
