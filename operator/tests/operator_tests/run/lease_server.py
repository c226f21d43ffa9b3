"""An API server that holds one Lease, and the roads to it: slow, or losing what is sent. On the loop's clock,
which tests make virtual."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from operator_tests.kube.unused import UnusedKube
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeConflictError, KubeError, KubeNotFoundError, KubeUnavailableError
from waltz_operator.kube.kinds import Kind
from waltz_operator.run.lease import OperatorLease

CALL_SECONDS = 10.0
"""The deadline of every call, as the client's."""


class Trip(NamedTuple):
    """Of one call: seconds to the server and back; `asks`, `answers`: whether the request, and the
    answer, arrive at all."""

    there: float = 0.0
    back: float = 0.0
    asks: bool = True
    answers: bool = True


class LeaseServer:
    """The one object, with optimistic concurrency. `error`: what every call ends with, instead of being
    done."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.writes = 0
        self.error: KubeError | None = None
        self._version = 0

    @property
    def holder(self) -> str:
        """Who it says has it; empty for nobody."""
        return str((self.lease or {}).get("spec", {}).get("holderIdentity", ""))

    def read(self) -> Object:
        self._fail()
        if self.lease is None:
            raise KubeNotFoundError("no lease", status=404)
        return copy.deepcopy(self.lease)

    def create(self, obj: Mapping[str, Any]) -> Object:
        self._fail()
        if self.lease is not None:
            raise KubeConflictError("it exists", status=409, reason="AlreadyExists")
        return self.put(obj)

    def replace(self, obj: Mapping[str, Any]) -> Object:
        held = self.read()
        if obj["metadata"].get("resourceVersion") != held["metadata"]["resourceVersion"]:
            raise KubeConflictError("it changed", status=409, reason="Conflict")
        return self.put(obj)

    def put(self, obj: Mapping[str, Any]) -> Object:
        """Store it, as its next version."""
        self.writes += 1
        self._version += 1
        self.lease = copy.deepcopy(dict(obj))
        self.lease["metadata"]["resourceVersion"] = str(self._version)
        return copy.deepcopy(self.lease)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


class Road(UnusedKube):
    """The way of one instance to the server. A call that its caller gave up goes on its way all the same."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.next_trip: Callable[[], Trip] = Trip

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        return await self._call(self.server.read)

    async def create(self, obj: Mapping[str, Any]) -> Object:
        return await self._call(lambda: self.server.create(obj))

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        return await self._call(lambda: self.server.replace(obj))

    async def _call(self, work: Callable[[], Object]) -> Object:
        loop, trip = asyncio.get_running_loop(), self.next_trip()
        answer: asyncio.Future[Object] = loop.create_future()

        def arrive() -> None:
            try:
                found: Object | KubeError = work()
            except KubeError as error:
                found = error
            if trip.answers:
                loop.call_later(trip.back, deliver, found)

        def deliver(found: Object | KubeError) -> None:
            if answer.done():
                return
            if isinstance(found, KubeError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        if trip.asks:
            loop.call_later(trip.there, arrive)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await answer
        except TimeoutError:
            raise KubeUnavailableError("no answer") from None


def instance(road: Road, identity: str, wall_clock: Callable[[], float] = lambda: 0.0) -> OperatorLease:
    """One operator's Lease."""

    async def unused() -> bool:
        return road.server.writes == 0

    return OperatorLease(
        road, "waltz-system", "waltz-operator", identity, wall_clock=wall_clock, unused=unused
    )
