"""The Lease that keeps two operators from acting together (coordination.k8s.io).

Holder: writes its name and renews. Everyone else: takes the Lease only after having *watched it unchanged*
for its whole duration by the own clock, so clocks of different machines need not agree. The holder counts its
time from the moment a renewal that succeeded was *sent*; `check` refuses a write that might still be on its
way when the time is over. So a write that passes `check` has left the operator's hands before another
operator may begin.

A Lease that does not exist may have been deleted a moment ago, and its holder learns that at the next
renewal only: it is made only after it was seen missing for a whole duration, or where no operator has written
anything yet, as at the first start of an installation.

One writer: the task that awaits `run`. Invariants
  1. `check` passes only while `holding` and with at least `write_seconds` left.
  2. Once lost, a Lease object of this instance is never taken again by this instance: the process ends and
     starts anew.
"""

import asyncio
import datetime
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from waltz_operator.kube.client import Kube, Object
from waltz_operator.kube.errors import KubeConflictError, KubeError, KubeNotFoundError
from waltz_operator.kube.kinds import LEASE

_log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """The Lease is (or may soon be) another operator's: nothing was written."""

    retriable = False
    user_error = True


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. `write_seconds`: the longest a single write may take."""

    duration: float = 20.0
    renew: float = 4.0
    retry: float = 2.0
    write_seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.renew + self.write_seconds >= self.duration:
            raise ValueError("a Lease must last longer than a renewal and a write together")


class OperatorLease:
    """See the module. `wall_clock`: seconds since the epoch, only for what people read in the object.
    `unused`: whether nothing shows that an operator has ever written; asked where there is no Lease."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        wall_clock: Callable[[], float],
        unused: Callable[[], Awaitable[bool]],
        times: LeaseTimes | None = None,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._wall_clock = wall_clock
        self._times = times or LeaseTimes()
        self._held: Object | None = None
        self._renewed_at = 0.0
        self._unused = unused
        self._seen: tuple[str, float] | None = None
        self._missing_since: float | None = None
        self.lost = asyncio.Event()

    @property
    def holding(self) -> bool:
        """Whether the Lease is ours now."""
        return self._held is not None and not self.lost.is_set() and self._remaining() > 0

    def _remaining(self) -> float:
        return self._renewed_at + self._times.duration - asyncio.get_running_loop().time()

    def check(self) -> None:
        """To be called right before each write. LeaseLostError unless there is time for one."""
        if self._held is None or self.lost.is_set() or self._remaining() < self._times.write_seconds:
            raise LeaseLostError(
                f"the Lease {self._namespace}/{self._name} may no longer be held by this process; nothing was written"
            )

    async def acquire(self) -> None:
        """Wait until the Lease is ours. KubeForbiddenError, KubeInvalidError and the like pass; what may heal
        is tried again."""
        while True:
            try:
                if await self._try_to_take():
                    _log.info("holding the lease %s/%s as %s", self._namespace, self._name, self._identity)
                    return
            except KubeError as error:
                if not error.retriable:
                    raise
                self._missing_since = None  # it may have been made and deleted again meanwhile
                _log.warning("the lease cannot be taken yet: %s", error)
            await asyncio.sleep(self._times.retry)

    async def _try_to_take(self) -> bool:
        loop = asyncio.get_running_loop()
        try:
            lease = await self._kube.get(LEASE, self._namespace, self._name)
        except KubeNotFoundError:
            return await self._make()
        self._missing_since = None
        holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        version = str(lease["metadata"]["resourceVersion"])
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, loop.time())
            if holder not in ("", self._identity):
                _log.info("the lease is held by %s; waiting", holder)
        duration = (lease.get("spec") or {}).get("leaseDurationSeconds") or self._times.duration
        if holder not in ("", self._identity) and loop.time() - self._seen[1] < float(duration):
            return False
        sent = loop.time()
        try:
            self._held = await self._kube.replace(self._object(lease))
        except (KubeConflictError, KubeNotFoundError):
            return False
        self._renewed_at = sent
        return True

    async def _make(self) -> bool:
        """There is none: make it, when nobody can hold one that was deleted."""
        loop = asyncio.get_running_loop()
        if self._missing_since is None:
            self._missing_since = loop.time()
            if self._seen is not None or not await self._unused():
                _log.warning(
                    "there is no lease %s/%s, which somebody may have deleted: it is made after %g s without one",
                    self._namespace,
                    self._name,
                    self._times.duration,
                )
                return False
        elif loop.time() - self._missing_since < self._times.duration:
            return False
        sent = loop.time()
        try:
            self._held = await self._kube.create(self._object(None))
        except KubeConflictError:
            self._missing_since = None
            return False
        self._renewed_at = sent
        return True

    async def run(self) -> None:
        """Renew until cancelled; returns (and `lost` is set) when the Lease is lost."""
        while self._remaining() > 0:
            await asyncio.sleep(self._times.renew)
            await self._renew()
        self.lost.set()
        _log.error("the lease %s/%s was lost: nothing is written from here on", self._namespace, self._name)

    async def _renew(self) -> None:
        """One renewal, repeated until it succeeds or the time is over."""
        loop = asyncio.get_running_loop()
        while (left := self._remaining()) > 0:
            sent = loop.time()
            try:
                async with asyncio.timeout(left):
                    self._held = await self._kube.replace(self._object(self._held))
                self._renewed_at = sent
                return
            except TimeoutError:
                return
            except KubeConflictError:
                if not await self._still_ours():
                    self._renewed_at = loop.time() - self._times.duration
                    return
            except KubeNotFoundError:
                self._renewed_at = loop.time() - self._times.duration
                return
            except KubeError as error:
                _log.warning("the lease was not renewed, %.0f s are left: %s", left, error)
            await asyncio.sleep(min(self._times.retry, max(self._remaining(), 0.0)))

    async def _still_ours(self) -> bool:
        """After a conflict: an answer to this process may have been lost, or somebody edited the object. Ours
        only if it says so."""
        try:
            lease = await self._kube.get(LEASE, self._namespace, self._name)
        except KubeNotFoundError:
            return False
        except KubeError:
            return True  # not known: the clock decides
        if (lease.get("spec") or {}).get("holderIdentity") != self._identity:
            return False
        self._held = lease
        return True

    async def release(self) -> None:
        """Give it up in order, so that the next operator need not wait. Errors are of no consequence."""
        held, self._held = self._held, None
        if held is None or self.lost.is_set():
            return
        self.lost.set()
        try:
            await self._kube.replace(self._object(held, identity=""))
        except KubeError as error:
            _log.debug("the lease was not released: %s", error)

    def _object(self, before: Object | None, identity: str | None = None) -> dict[str, Any]:
        now = datetime.datetime.fromtimestamp(self._wall_clock(), datetime.UTC)
        text = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = dict((before or {}).get("spec") or {})
        holder = self._identity if identity is None else identity
        if spec.get("holderIdentity") != holder:
            spec["acquireTime"] = text
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec |= {
            "holderIdentity": holder,
            "leaseDurationSeconds": math.ceil(self._times.duration),
            "renewTime": text,
        }
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if before is not None:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
