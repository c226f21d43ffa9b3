"""Two installations of the operator that watch one namespace: whose a cluster is.

Each has a Lease of its own, so a Lease cannot keep them apart. The status of a cluster records who works on
it; it is written under the resource version that was read, so of two that find none one wins. The other one
changes nothing, and reports it, until the annotation names it or the first one's Lease is gone or has not
been renewed for long.
"""

from __future__ import annotations

import asyncio
import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from waltz_operator.api.errors import ResourceError
from waltz_operator.api.metadata import FINALIZER, OPERATED_BY
from waltz_operator.kube.client import Kube
from waltz_operator.kube.errors import KubeError, KubeNotFoundError
from waltz_operator.kube.kinds import LEASE, WALTZ_CLUSTER
from waltz_operator.run.lease import LeaseTimes

ABANDONED_SECONDS = 600.0
"""A Lease that was not renewed for so long has nobody who comes back; more than clocks of machines differ."""

MISSING_SECONDS = LeaseTimes().duration
"""A Lease that was seen missing for so long was held by nobody who still writes: it may have been deleted a
moment ago."""


class OtherOperatorError(ResourceError):
    """Another installation works on the cluster: nothing is written by this one. `again_seconds`: when it may
    be otherwise."""

    retriable = False
    again_seconds = math.inf


class Installations:
    """Owner of nothing. `own`: this installation, namespace and name of its Lease; `wall_clock` in
    seconds."""

    def __init__(self, kube: Kube, own: str, wall_clock: Callable[[], float]) -> None:
        self.own = own
        self._kube = kube
        self._wall_clock = wall_clock
        self._missing_since: dict[str, tuple[float, float]] = {}
        """By installation: the first look that found no Lease of its, and the last one."""

    async def check(self, body: Mapping[str, Any]) -> None:
        """OtherOperatorError unless the cluster is this installation's, or may become it."""
        named = str((body["metadata"].get("annotations") or {}).get(OPERATED_BY) or "")
        recorded = str((body.get("status") or {}).get("operator") or "")
        if self.own in (named, "" if named else recorded):
            return
        other = named or recorded
        if not other or (not named and await self._abandoned(other)):
            return
        error = OtherOperatorError(
            "status.operator",
            f"the operator {other} works on this cluster, so {self.own} changes nothing: let only one of them watch "
            f"this namespace, or set the annotation {OPERATED_BY} to the one that is to continue",
        )
        if not named and other in self._missing_since:
            error.again_seconds = MISSING_SECONDS
        raise error

    async def _abandoned(self, other: str) -> bool:
        """Whether its Lease proves that nobody renews it; what is not known is no proof."""
        namespace, _, name = other.partition("/")
        try:
            lease = await self._kube.get(LEASE, namespace, name)
        except KubeNotFoundError:
            now = asyncio.get_running_loop().time()
            first, last = self._missing_since.get(other, (now, now))
            if now - last > 2 * MISSING_SECONDS:  # it may have been there meanwhile
                first = now
            self._missing_since[other] = first, now
            return now - first >= MISSING_SECONDS
        except KubeError:
            self._missing_since.pop(other, None)
            return False
        self._missing_since.pop(other, None)
        try:
            renewed = datetime.datetime.fromisoformat(str((lease.get("spec") or {}).get("renewTime")))
        except ValueError:
            return False
        return self._wall_clock() - renewed.timestamp() > ABANDONED_SECONDS


async def nothing_written(kube: Kube, namespaces: Sequence[str]) -> bool:
    """Whether no cluster in these namespaces (none: in all) shows that an operator has ever written: every
    one begins with our finalizer. What is not known is no proof."""
    try:
        for namespace in namespaces or (None,):
            for body in await kube.list(WALTZ_CLUSTER, namespace):
                if FINALIZER in (body["metadata"].get("finalizers") or ()) or body.get("status"):
                    return False
    except KubeError:
        return False
    return True
