"""The Lease, one rule at a time, on virtual time; `test_lease_model` has them all at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.lease_server import CALL_SECONDS, LeaseServer, Road, Trip, instance
from waltz_operator.api.metadata import FINALIZER
from waltz_operator.kube.errors import KubeForbiddenError, KubeUnavailableError
from waltz_operator.run.installations import nothing_written
from waltz_operator.run.lease import LeaseLostError, LeaseTimes, OperatorLease
from waltz_protocol.aio.tasks import spawn

pytestmark = pytest.mark.looptime

TIMES = LeaseTimes()


def now() -> float:
    return asyncio.get_running_loop().time()


def holding(lease: OperatorLease) -> bool:
    """Asked anew each time."""
    return lease.holding


def other(server: LeaseServer, holder: str = "other", duration: int | None = 20) -> None:
    """Somebody else writes the object."""
    spec = {"holderIdentity": holder, "renewTime": "2001-01-01T00:00:00Z"}
    lease = {"metadata": {"name": "waltz-operator"}, "spec": spec}
    server.put(lease if duration is None else {**lease, "spec": spec | {"leaseDurationSeconds": duration}})


@asynccontextmanager
async def renewing(lease: OperatorLease) -> AsyncIterator[None]:
    """While it is kept."""
    await lease.acquire()
    task = spawn(lease.run(), name="lease")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def trips(*first: Trip) -> Iterator[Trip]:
    """These, then good ones."""
    yield from first
    while True:
        yield Trip()


# -------------------------------------------------------------------------------------------------- taking it


async def test_the_first_one_takes_it_at_once() -> None:
    server = LeaseServer()
    lease = instance(Road(server), "me")
    assert not holding(lease)
    with pytest.raises(LeaseLostError):
        lease.check()
    await lease.acquire()
    assert server.holder == "me"
    assert holding(lease)
    lease.check()


async def test_of_two_that_find_none_one_gets_it() -> None:
    server = LeaseServer()
    leases = [instance(Road(server), name) for name in ("a", "b")]
    tasks = [spawn(lease.acquire(), name="acquire") for lease in leases]
    await asyncio.wait(tasks, timeout=5)
    assert [lease.holding for lease in leases] == [True, False]
    tasks[1].cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("duration", [20, None])
async def test_another_ones_is_taken_after_it_stood_still_for_its_duration(duration: int | None) -> None:
    """What the object says about the time of its last renewal is of no account: clocks need not agree."""
    server = LeaseServer()
    other(server, duration=duration)
    await instance(Road(server), "me").acquire()
    assert TIMES.duration <= now() <= TIMES.duration + TIMES.retry
    assert server.holder == "me"


async def test_the_duration_counts_from_the_last_change_that_was_seen() -> None:
    server = LeaseServer()
    other(server)
    asyncio.get_running_loop().call_later(15, other, server)
    await instance(Road(server), "me").acquire()
    assert now() >= 15 + TIMES.duration


async def test_it_waits_as_long_as_the_holder_says() -> None:
    server = LeaseServer()
    other(server, duration=60)
    await instance(Road(server), "me").acquire()
    assert now() >= 60


async def test_one_that_was_released_is_taken_at_once() -> None:
    server = LeaseServer()
    first, second = instance(Road(server), "a"), instance(Road(server), "b")
    await first.acquire()
    await first.release()
    assert not first.holding
    with pytest.raises(LeaseLostError):
        first.check()
    await second.acquire()
    assert now() < 1
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] >= 2


async def test_it_does_not_take_what_changed_while_it_asked() -> None:
    """The holder's renewal arrives between our look and our write."""
    server, road = LeaseServer(), Road(LeaseServer())
    road.server = server
    other(server)
    slow = trips(*[Trip()] * 11, Trip(there=1.0))  # 0, 2, … 20 s: looks; then the write
    road.next_trip = lambda: next(slow)
    asyncio.get_running_loop().call_later(20.5, other, server)
    task = spawn(instance(road, "me").acquire(), name="acquire")
    await asyncio.sleep(30)
    assert server.holder == "other"
    task.cancel()
    await asyncio.wait([task])


async def test_what_may_heal_is_tried_again_and_what_may_not_is_told() -> None:
    server = LeaseServer()
    server.error = KubeUnavailableError("down")
    asyncio.get_running_loop().call_later(9, setattr, server, "error", None)
    await instance(Road(server), "me").acquire()
    assert now() >= 9
    server.error = KubeForbiddenError("not permitted")
    with pytest.raises(KubeForbiddenError):
        await instance(Road(server), "you").acquire()


async def test_an_answer_to_taking_it_that_was_lost_is_no_harm() -> None:
    server = LeaseServer()
    road = Road(server)
    ways = trips(Trip(), Trip(answers=False))
    road.next_trip = lambda: next(ways)
    lease = instance(road, "me")
    await lease.acquire()
    assert holding(lease)
    assert server.holder == "me"


# ------------------------------------------------------------------------------------------------- keeping it


async def test_it_is_renewed_and_never_lost_while_the_server_answers() -> None:
    server = LeaseServer()
    lease = instance(Road(server), "me")
    async with renewing(lease):
        for _ in range(100):
            await asyncio.sleep(1)
            lease.check()
    assert server.writes >= 100 / (TIMES.renew + 1)


async def test_a_write_is_refused_that_might_outlive_it() -> None:
    """The server is silent: the last moment for a write is `write_seconds` before the end."""
    server = LeaseServer()
    road = Road(server)
    lease = instance(road, "me")
    async with renewing(lease):
        road.next_trip = lambda: Trip(asks=False)
        last = TIMES.duration - TIMES.write_seconds
        await asyncio.sleep(last - 0.1)
        lease.check()
        await asyncio.sleep(0.2)
        assert holding(lease)
        with pytest.raises(LeaseLostError):
            lease.check()
        await asyncio.sleep(TIMES.write_seconds)
        assert not holding(lease)
        async with asyncio.timeout(CALL_SECONDS):
            await lease.lost.wait()
        road.next_trip = Trip
        await asyncio.sleep(60)
        assert not holding(lease), "what was lost was taken again"


async def test_its_time_counts_from_when_the_renewal_was_sent() -> None:
    server = LeaseServer()
    road = Road(server)
    ways = trips(Trip(), Trip(back=8.0))  # nobody has it; create
    road.next_trip = lambda: next(ways)
    lease = instance(road, "me")
    await lease.acquire()
    assert now() == pytest.approx(8.0)
    await asyncio.sleep(TIMES.duration - TIMES.write_seconds - 8.0 + 0.1)
    with pytest.raises(LeaseLostError):
        lease.check()
    await asyncio.sleep(TIMES.write_seconds)
    assert not holding(lease)


async def test_the_lost_answer_of_a_renewal_does_not_lose_it() -> None:
    server = LeaseServer()
    road = Road(server)
    lease = instance(road, "me")
    async with renewing(lease):
        ways = trips(Trip(back=CALL_SECONDS + 1))
        road.next_trip = lambda: next(ways)
        await asyncio.sleep(60)
        lease.check()


async def test_an_edit_by_a_person_does_not_lose_it() -> None:
    server = LeaseServer()
    lease = instance(Road(server), "me")
    async with renewing(lease):
        assert server.lease is not None
        server.lease["metadata"]["labels"] = {"looked": "at"}
        server.put(server.lease)
        await asyncio.sleep(60)
        lease.check()


async def test_it_is_lost_at_once_when_another_one_has_it() -> None:
    server = LeaseServer()
    lease = instance(Road(server), "me")
    async with renewing(lease):
        other(server)
        await asyncio.sleep(TIMES.renew + 0.1)
        assert lease.lost.is_set()
        with pytest.raises(LeaseLostError):
            lease.check()
        writes = server.writes
        await lease.release()
        assert (server.holder, server.writes) == ("other", writes)


async def test_it_is_lost_when_the_object_was_deleted() -> None:
    server = LeaseServer()
    lease = instance(Road(server), "me")
    async with renewing(lease):
        server.lease = None
        await asyncio.sleep(TIMES.renew + 0.1)
        assert lease.lost.is_set()
        assert not holding(lease)


async def test_an_error_while_it_is_released_is_of_no_consequence() -> None:
    server = LeaseServer()
    lease = instance(Road(server), "me")
    await lease.acquire()
    server.error = KubeForbiddenError("not permitted")
    await lease.release()
    assert not holding(lease)


# ---------------------------------------------------------------------------------------------------- numbers


def test_a_lease_must_outlast_a_renewal_and_a_write() -> None:
    with pytest.raises(ValueError, match="longer than a renewal and a write"):
        LeaseTimes(duration=14.0, renew=4.0, write_seconds=10.0)


async def test_the_object_never_promises_less_than_the_holder_counts_on() -> None:
    server = LeaseServer()
    times = LeaseTimes(duration=20.4)
    unused = AsyncMock(return_value=True)
    lease = OperatorLease(Road(server), "n", "l", "me", wall_clock=lambda: 0.0, unused=unused, times=times)
    await lease.acquire()
    assert server.lease is not None
    assert server.lease["spec"]["leaseDurationSeconds"] >= times.duration


# ------------------------------------------------------------------------------------------ a deleted object


async def test_one_that_was_deleted_is_made_again_after_a_whole_duration() -> None:
    """Its holder learns of it later, and has writes on their way."""
    server = LeaseServer()
    mine, theirs = instance(Road(server), "me"), instance(Road(server), "them")
    async with renewing(theirs):
        server.lease, deleted = None, now()
        await mine.acquire()
    assert TIMES.duration <= now() - deleted <= TIMES.duration + TIMES.retry + 0.5
    assert theirs.lost.is_set()
    assert server.holder == "me"


async def test_one_that_was_seen_is_not_made_at_once_though_nothing_was_written_yet() -> None:
    """Who has it may begin with the first cluster before it learns that it is gone."""
    server = LeaseServer()
    other(server)
    unused = AsyncMock(return_value=True)
    mine = OperatorLease(Road(server), "n", "l", "me", wall_clock=lambda: 0.0, unused=unused, times=TIMES)
    taking = spawn(mine.acquire(), name="acquire")
    await asyncio.sleep(TIMES.retry)
    server.lease = None
    await asyncio.sleep(TIMES.duration - 1)
    assert server.lease is None
    await taking
    assert server.holder == "me"


async def test_one_that_comes_back_meanwhile_is_another_ones() -> None:
    server = LeaseServer()
    other(server)
    server.lease = None
    mine = instance(Road(server), "me")
    taking = spawn(mine.acquire(), name="acquire")
    await asyncio.sleep(TIMES.duration - 5)
    other(server)
    await asyncio.sleep(1.0 + TIMES.retry)
    server.lease = None
    await asyncio.sleep(TIMES.duration - 1)
    assert server.lease is None, "it was missing for less than a duration"
    await taking
    assert holding(mine)


@pytest.mark.parametrize(
    ("metadata", "status", "unused"),
    [
        ({}, None, True),
        ({"finalizers": ["somebody/else"]}, None, True),
        ({"finalizers": [FINALIZER]}, None, False),
        ({}, {"operator": "a/b"}, False),
    ],
)
async def test_what_shows_that_an_operator_has_written(
    metadata: dict[str, Any], status: dict[str, Any] | None, unused: bool
) -> None:
    body = {"kind": "WaltzCluster", "metadata": {"name": "c", "namespace": "n", **metadata}}
    if status is not None:
        body["status"] = status
    assert await nothing_written(ObjectsKube(), ())
    assert await nothing_written(ObjectsKube(body), ()) is unused

    class Silent(ObjectsKube):
        async def list(self, *_: Any, **__: Any) -> Any:
            raise KubeUnavailableError("no answer")

    assert not await nothing_written(Silent(), ())
