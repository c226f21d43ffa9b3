"""The workers on virtual time: one pass of a cluster at a time, woken, repeated, backed off, ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from waltz_operator.kube.errors import KubeNotFoundError, KubeUnavailableError
from waltz_operator.run.lease import LeaseLostError
from waltz_operator.run.metrics import OperatorMetrics
from waltz_operator.run.reconcile import PassResult
from waltz_operator.run.workers import (
    FIRST_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    PASS_SECONDS,
    SETTLE_SECONDS,
    STUCK_SECONDS,
    Key,
    Workers,
)
from waltz_protocol.aio.tasks import spawn

pytestmark = pytest.mark.looptime

A: Key = ("demo", "a")
B: Key = ("demo", "b")
RESYNC_SECONDS = 60.0
QUIET = PassResult(RESYNC_SECONDS, False)
Body = Callable[[Key], Awaitable[PassResult]]


async def at_once(_: Key) -> PassResult:
    return QUIET


def now() -> float:
    return asyncio.get_running_loop().time()


class Stage:
    """Workers whose passes a test gives; judges that no two of a cluster run at a time."""

    def __init__(self, concurrency: int = 8) -> None:
        self.body: Body = at_once
        self.began: list[tuple[Key, float]] = []
        self.errors: list[tuple[Key, str]] = []
        self.ended: list[Key] = []
        self.most = 0
        self.overlapped = False
        self.running: set[Key] = set()
        self.stop = asyncio.Event()
        self.workers = Workers(
            self._pass,
            self._gone,
            self._failed,
            OperatorMetrics(),
            concurrency=concurrency,
            resync_seconds=RESYNC_SECONDS,
            rng=random.Random(1),
        )

    async def _pass(self, namespace: str, name: str) -> PassResult:
        key = (namespace, name)
        self.overlapped |= key in self.running  # an exception here would be taken for one of the pass
        self.running.add(key)
        self.most = max(self.most, len(self.running))
        self.began.append((key, now()))
        try:
            return await self.body(key)
        finally:
            self.running.discard(key)

    async def _gone(self, key: Key) -> None:
        self.ended.append(key)

    async def _failed(self, key: Key, text: str) -> None:
        self.errors.append((key, text))

    def times(self, key: Key = A) -> list[float]:
        return [at for one, at in self.began if one == key]

    def gaps(self) -> list[float]:
        found = self.times()
        return [after - before for before, after in pairwise(found)]


@asynccontextmanager
async def working(concurrency: int = 8) -> AsyncIterator[Stage]:
    stage = Stage(concurrency)
    task = spawn(stage.workers.run(stage.stop), name="workers")
    await asyncio.sleep(0)
    try:
        yield stage
    finally:
        stage.stop.set()
        await task
        assert not stage.overlapped, "two passes of one cluster at a time"


async def slow(_: Key) -> PassResult:
    await asyncio.sleep(5)
    return QUIET


async def test_a_storm_of_events_is_one_pass_and_one_more() -> None:
    async with working() as stage:
        stage.body = slow
        stage.workers.wake(A)
        await asyncio.sleep(1)
        for _ in range(1000):
            stage.workers.wake(A)
            await asyncio.sleep(0.001)
        await asyncio.sleep(30)
        assert len(stage.times()) == 2


async def test_an_event_during_a_pass_leads_to_another_one_soon() -> None:
    async with working() as stage:
        stage.body = slow
        stage.workers.wake(A)
        await asyncio.sleep(4.9)
        stage.workers.wake(A)
        await asyncio.sleep(2)
        assert stage.times()[1:] == [pytest.approx(5 + SETTLE_SECONDS)]


async def test_an_event_while_it_waits_leads_to_a_pass_soon() -> None:
    async with working() as stage:
        stage.workers.wake(A)
        await asyncio.sleep(10)
        stage.workers.wake(A)
        await asyncio.sleep(1)
        assert stage.times()[1:] == [pytest.approx(10 + SETTLE_SECONDS)]


async def test_without_events_it_looks_again_when_the_pass_said() -> None:
    async with working() as stage:
        stage.workers.wake(A)
        await asyncio.sleep(179)
        assert stage.gaps() == [pytest.approx(60.0)] * 2


async def waiting(_: Key) -> PassResult:
    return PassResult(1.0, False)


async def test_what_is_waited_for_in_vain_is_looked_at_less_often() -> None:
    async with working() as stage:
        stage.body = waiting
        stage.workers.wake(A)
        await asyncio.sleep(200)
        gaps = stage.gaps()
        assert gaps[:9] == [pytest.approx(1.0)] * 9
        assert gaps[9:29] == [pytest.approx(3.0)] * 20
        assert gaps[29:] == [pytest.approx(10.0)] * len(gaps[29:])
        assert len(gaps) > 35


async def test_an_event_or_a_change_makes_it_look_often_again() -> None:
    async with working() as stage:
        stage.body = waiting
        stage.workers.wake(A)
        await asyncio.sleep(100)
        stage.workers.wake(A)
        await asyncio.sleep(8)
        assert stage.gaps()[-7:] == [pytest.approx(1.0)] * 7
        await asyncio.sleep(100)
        before = len(stage.gaps())
        changes = iter([PassResult(1.0, True)])
        stage.body = lambda _: answer(next(changes, PassResult(1.0, False)))
        await asyncio.sleep(25)
        assert sum(gap == pytest.approx(1.0) for gap in stage.gaps()[before:]) == 10


@pytest.mark.timeout(20)
async def test_an_event_in_the_moment_of_the_end_does_not_keep_a_worker_alive() -> None:
    async with working() as stage:
        stage.workers.wake(A)
        await asyncio.sleep(10)
        stage.workers.wake(A)


async def test_the_resynchronisation_is_no_news() -> None:
    async with working() as stage:
        stage.body = waiting
        stage.workers.wake(A)
        await asyncio.sleep(100)
        stage.workers.wake(A, changed=False)
        await asyncio.sleep(25)
        assert stage.gaps()[-2:] == [pytest.approx(10.0)] * 2


async def answer(result: PassResult) -> PassResult:
    return result


async def test_clusters_run_side_by_side_up_to_the_bound_and_all_get_their_turn() -> None:
    async with working(concurrency=3) as stage:
        stage.body = slow
        keys = [("demo", str(number)) for number in range(10)]
        for key in keys:
            stage.workers.wake(key)
        await asyncio.sleep(20.5)
        assert stage.most == 3
        assert {key for key, _ in stage.began} == set(keys)


def failing(fail: Callable[[], PassResult], until: float = float("inf")) -> Body:
    async def body(_: Key) -> PassResult:
        if now() < until:
            return fail()
        return QUIET

    return body


def unavailable() -> PassResult:
    raise KubeUnavailableError("down")


def broken() -> PassResult:
    raise ZeroDivisionError("an error of ours")


def ended_early() -> PassResult:
    return PassResult(60.0, True, "a write was refused")


@pytest.mark.parametrize("fail", [unavailable, broken, ended_early])
async def test_after_errors_the_pause_doubles_up_to_a_bound_and_events_do_not_shorten_it(
    fail: Callable[[], PassResult],
) -> None:
    async with working() as stage:
        stage.body = failing(fail)
        stage.workers.wake(A)
        for _ in range(1000):
            stage.workers.wake(A)
            await asyncio.sleep(0.5)
        gaps, bound = stage.gaps(), FIRST_BACKOFF_SECONDS
        for gap in gaps:
            assert 0.8 * bound <= gap <= bound
            bound = min(2 * bound, MAX_BACKOFF_SECONDS)
        assert len(gaps) >= 8
        assert len(stage.errors) == len(stage.began)


async def test_one_clusters_errors_do_not_keep_another_one_waiting() -> None:
    async with working(concurrency=1) as stage:

        async def body(key: Key) -> PassResult:
            return unavailable() if key == A else QUIET

        stage.body = body
        stage.workers.wake(A)
        await asyncio.sleep(200)
        stage.workers.wake(B)
        await asyncio.sleep(1)
        assert len(stage.times(B)) == 1


async def test_what_was_refused_is_not_tried_again_soon() -> None:
    async with working() as stage:
        stage.body = failing(lambda: PassResult(60.0, False, "not permitted", needs_person=True))
        stage.workers.wake(A)
        await asyncio.sleep(200)
        assert all(gap >= 0.8 * MAX_BACKOFF_SECONDS for gap in stage.gaps())


async def test_a_success_forgets_the_errors_before() -> None:
    async with working() as stage:
        stage.body = failing(unavailable, until=20.0)
        stage.workers.wake(A)
        await asyncio.sleep(50)
        stage.body = failing(unavailable)
        count = len(stage.began)
        stage.workers.wake(A)
        await asyncio.sleep(2)
        assert len(stage.began) > count + 1, "it still waits as long as after the earlier errors"


async def test_the_worker_of_a_cluster_that_is_gone_ends_and_another_event_makes_a_new_one() -> None:
    async with working() as stage:

        async def missing(_: Key) -> PassResult:
            raise KubeNotFoundError("no such cluster", status=404)

        stage.body = missing
        stage.workers.wake(A)
        await asyncio.sleep(300)
        assert len(stage.began) == 1
        assert stage.ended == [A]
        stage.body = at_once
        stage.workers.wake(A)
        await asyncio.sleep(1)
        assert len(stage.began) == 2
        assert not stage.errors


async def test_one_that_comes_back_while_it_is_forgotten_is_not_missed() -> None:
    async with working() as stage:

        async def missing(_: Key) -> PassResult:
            await asyncio.sleep(1)
            stage.body = at_once
            raise KubeNotFoundError("no such cluster", status=404)

        stage.body = missing
        stage.workers.wake(A)
        await asyncio.sleep(0.5)
        stage.workers.wake(A)
        await asyncio.sleep(5)
        assert len(stage.began) == 2


async def test_the_loss_of_the_lease_ends_everything() -> None:
    stage = Stage()

    async def lost(_: Key) -> PassResult:
        raise LeaseLostError("lost")

    stage.body = lost
    task = spawn(stage.workers.run(stage.stop), name="workers")
    await asyncio.sleep(0)
    stage.workers.wake(A)
    await asyncio.wait([task], timeout=10)
    error = task.exception()
    assert isinstance(error, ExceptionGroup)
    assert error.subgroup(LeaseLostError) is not None


async def test_after_the_stop_nothing_begins() -> None:
    async with working() as stage:
        stage.workers.wake(A)
        await asyncio.sleep(1)
        stage.stop.set()
        await asyncio.sleep(0.1)
        stage.workers.wake(A)
        stage.workers.wake(B)
        await asyncio.sleep(100)
        assert len(stage.began) == 1


# ---- liveness: of the process, never of an object


async def hanging(_: Key) -> PassResult:
    await asyncio.Event().wait()
    return QUIET


async def test_a_pass_that_hangs_is_ended_and_said_and_the_others_have_their_turn() -> None:
    async with working(concurrency=1) as stage:
        stage.body = lambda key: hanging(key) if key == A else at_once(key)
        stage.workers.wake(A)
        await asyncio.sleep(1)
        stage.workers.wake(B)
        await asyncio.sleep(PASS_SECONDS + 1)
        assert stage.times(B)
        assert "has not ended within" in stage.errors[0][1]


async def test_an_object_that_fails_for_hours_is_no_fault_of_the_process() -> None:
    async with working(concurrency=2) as stage:
        stage.body = lambda key: misspelt(key) if key == A else at_once(key)
        stage.workers.wake(A)
        stage.workers.wake(B)
        for _ in range(100):
            await asyncio.sleep(100)
            assert stage.workers.stuck() == ""
        assert len(stage.times(B)) >= 100


async def misspelt(_: Key) -> PassResult:
    raise KubeUnavailableError("PATCH /apis: nodeSelektor: field not declared in schema", status=500)


async def test_workers_none_of_which_ends_are_a_fault_of_the_process() -> None:
    async def stubborn(_: Key) -> PassResult:
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                continue
        return QUIET

    freed = asyncio.Event()
    async with working(concurrency=2) as stage:
        stage.body = stubborn
        stage.workers.wake(A)
        await asyncio.sleep(2 * STUCK_SECONDS)
        assert stage.workers.stuck() == "", "there are places left"
        stage.workers.wake(B)
        await asyncio.sleep(STUCK_SECONDS + 1)
        assert "no pass has ended" in stage.workers.stuck()
        freed.set()
        await asyncio.sleep(1)
        assert stage.workers.stuck() == ""


async def test_a_race_with_a_person_is_no_event_and_the_next_pass_comes_soon() -> None:
    results = iter([PassResult(RESYNC_SECONDS, False, "it has changed", passing=True)])
    async with working() as stage:
        stage.body = lambda _: answer(next(results, QUIET))
        stage.workers.wake(A)
        await asyncio.sleep(3)
        assert stage.errors == []
        assert len(stage.times()) == 2
