"""An object whose values the API server took and our models do not: what its status says until a person has
corrected them. Pure.

Made of the raw object, since there is no other: a merge patch of the status, and none when it says so
already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from waltz_operator.api.cluster_status import ConditionType
from waltz_operator.api.errors import ResourceError
from waltz_operator.model.reasons import Reason
from waltz_operator.model.texts import fitting
from waltz_operator.model.times import timestamp

_SEEN = (ConditionType.AVAILABLE, ConditionType.DEGRADED, ConditionType.REPLICAS_CAUGHT_UP)
"""Conditions that need an observation of the cluster: there is none."""


class UnreadableError(ResourceError):
    """`body`: the object as the API server shows it. `at`: when, seconds (UNIX time)."""

    def __init__(self, body: Mapping[str, Any], error: ResourceError, at: float) -> None:
        super().__init__(error.path, error.text)
        self.body = body
        self.at = at

    @property
    def line(self) -> str:
        """For a person."""
        waits = "; the deletion waits until it is corrected" if self._deleting else ""
        return f"{' '.join(str(self).split())}{waits}"

    @property
    def _deleting(self) -> bool:
        return (self.body.get("metadata") or {}).get("deletionTimestamp") is not None


def unreadable_status(error: UnreadableError) -> dict[str, Any] | None:
    """The status to merge in; None when the object has it already."""
    status = error.body.get("status")
    status = status if isinstance(status, Mapping) else {}
    found = status.get("conditions")
    last = [one for one in found if isinstance(one, Mapping)] if isinstance(found, Sequence) else []
    wanted = [_told(one, error) for one in last]
    if not any(one.get("type") == ConditionType.VALID for one in last):
        wanted.append(_told({"type": ConditionType.VALID.value}, error))
    reported = {"conditions": wanted, "reason": Reason.INVALID_SPEC.value, **_head(error)}
    return None if all(status.get(name) == value for name, value in reported.items()) else reported


def _head(error: UnreadableError) -> dict[str, str]:
    if error.body.get("kind") == "WaltzCluster":
        return {"phase": "Invalid"}
    return {"message": error.line}


def _told(last: Mapping[str, Any], error: UnreadableError) -> dict[str, Any]:
    kind = last.get("type")
    if kind == ConditionType.VALID:
        status, text = "False", error.line
    elif kind in _SEEN:
        status, text = "Unknown", "nothing is looked at while a value cannot be read"
    elif kind == ConditionType.PROGRESSING:
        status, text = "False", error.line
    else:
        return dict(last)
    since = last.get("lastTransitionTime") if last.get("status") == status else None
    return {
        **last,
        "status": status,
        "reason": Reason.INVALID_SPEC.value,
        "message": fitting(text),
        "lastTransitionTime": since or timestamp(error.at),
        "observedGeneration": int((error.body.get("metadata") or {}).get("generation") or 0),
    }
