"""Events about the operator's objects (events.k8s.io/v1). The same Event is not sent twice within a while,
and never stops anything."""

from __future__ import annotations

import datetime
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from waltz_operator.api.metadata import FIELD_MANAGER
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube
from waltz_operator.kube.errors import KubeError

_log = logging.getLogger(__name__)

MAX_NOTE_BYTES = 1000
QUIET_SECONDS = 600.0
_REMEMBERED = 2048


class EventWriter:
    """One writer: the loop. `instance` names this operator process."""

    def __init__(self, kube: Kube, wall_clock: Callable[[], float], instance: str) -> None:
        self._kube = kube
        self._wall_clock = wall_clock
        self._instance = instance[:128]
        self._told: OrderedDict[tuple[str, str, str, str], float] = OrderedDict()

    async def emit(
        self,
        regarding: dict[str, Any],
        reason: str,
        text: str,
        kind: str = "Normal",
        action: str = "Reconcile",
        at: str = "",
    ) -> bool:
        """Write one about the object `regarding` (apiVersion, kind, name, namespace, uid); False when it
        was sent lately (that of the same `at`), or could not be written: that is only logged."""
        now = self._wall_clock()
        key = (str(regarding.get("uid", "")), reason, text, at)
        if now - self._told.get(key, float("-inf")) < QUIET_SECONDS:
            return False
        namespace = regarding["namespace"]
        time = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="microseconds")
        event = {
            "apiVersion": kinds.EVENT.api_version,
            "kind": kinds.EVENT.kind,
            "metadata": {"name": f"{regarding['name']}.{secrets.token_hex(8)}", "namespace": namespace},
            "eventTime": time.replace("+00:00", "Z"),
            "reportingController": f"waltz.dev/{FIELD_MANAGER}",
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": text.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
            "type": kind,
        }
        try:
            await self._kube.create(event)
        except KubeError as error:
            _log.warning("an event could not be written: %s", error)
            return False
        self._told[key] = now
        self._told.move_to_end(key)
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return True
