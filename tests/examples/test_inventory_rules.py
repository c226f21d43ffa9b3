"""Instances of examples/inventory against a log inside the test: each rule, instances that compete, answers
that got lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from aiohttp.test_utils import TestClient, TestServer

from inventory.clerk import Clerk, OtherContentError, UnknownIdError
from inventory.clock import keep_time
from inventory.events import (
    HEADERS,
    Cancelled,
    Delivered,
    Event,
    Pieces,
    Refused,
    Reserved,
    Shipped,
    Ticked,
    decode,
)
from inventory.service import Config, instance
from inventory.store import METADATA, Stock, Store, apply
from waltz_client import OutcomeUnknownError, partition_for
from waltz_client.sql import SqlCallbacks
from waltz_client.testing import InProcessLog

NORTH = "north"
PARTITION = partition_for(NORTH, 2)
HOLD_TICKS = 2
CLAIM_OF_THE_SPARK_SINK = 1464028237


def lamps(id: str, quantity: int = 1) -> Pieces:
    return Pieces(NORTH, id, "lamp", quantity)


class Instance:
    """One instance of the service, without HTTP and without a clock that ticks on its own."""

    def __init__(self, log: InProcessLog, database: Path, *, deadline_seconds: float = 10.0) -> None:
        self.log = log
        self.partition = log.partition(PARTITION)
        self.engine = sa.create_engine(f"sqlite:///{database}")
        METADATA.create_all(self.engine)
        self.store = Store(self.engine)
        self._deadline_seconds = deadline_seconds
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Instance":
        callbacks = await self._stack.enter_async_context(
            SqlCallbacks(self.engine, apply, where=HEADERS.owns)
        )
        await callbacks.create_tables()
        self.client = await self._stack.enter_async_context(self.log.client(callbacks))
        self.clerk = Clerk(self.client, callbacks, self.store, HOLD_TICKS, self._deadline_seconds)
        await self.client.writable(PARTITION)  # one that has to mount first would wait for what is held
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self.engine.dispose()

    async def reserve(self, id: str, quantity: int = 1) -> str:
        return (await self.clerk.reserve(lamps(id, quantity))).state

    async def state(self, id: str) -> str:
        return (await self.clerk.entry(NORTH, id)).state

    async def stock(self) -> Stock:
        return await self.clerk.stock(NORTH, "lamp")

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            await self.clerk.tick(PARTITION, self.store.next_tick(PARTITION, 1).tick - 1)

    async def sent(self, appends: int) -> None:
        """Until this many appends are held back."""
        while self.partition.waiting < appends:
            await asyncio.sleep(0.01)

    def tables(self) -> dict[str, list[tuple[object, ...]]]:
        with self.engine.connect() as connection:
            return {
                table.name: sorted(tuple(row) for row in connection.execute(sa.select(table)))
                for table in METADATA.tables.values()
            }


def events(log: InProcessLog) -> list[Event]:
    return [
        decode(one.header, one.data)
        for one in log.partition(PARTITION).transactions
        if HEADERS.owns(one.header)
    ]


def kinds(log: InProcessLog) -> Counter[type[Event]]:
    return Counter(type(event) for event in events(log))


async def refused(asked: Awaitable[object]) -> type[Exception] | None:
    try:
        await asked
    except Exception as error:
        return type(error)
    return None


@pytest.fixture
async def first(tmp_path: Path) -> AsyncIterator[Instance]:
    async with Instance(InProcessLog(2), tmp_path / "first.db") as first:
        await first.clerk.deliver(lamps("truck", 3))
        yield first


@pytest.fixture(params=["own database", "shared database"])
async def second(first: Instance, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Instance]:
    name = "first.db" if request.param == "shared database" else "second.db"
    async with Instance(first.log, tmp_path / name) as second:
        yield second


async def test_pieces_are_reserved_shipped_and_given_back(first: Instance) -> None:
    assert await first.stock() == Stock(3, 0)
    assert await first.reserve("a", 2) == "reserved"
    assert await first.reserve("b", 2) == "refused"
    assert await first.reserve("c", 1) == "reserved"
    assert await first.stock() == Stock(3, 3)
    assert (await first.clerk.ship(NORTH, "a")).state == "shipped"
    assert await first.stock() == Stock(1, 1)
    assert (await first.clerk.cancel(NORTH, "c")).state == "cancelled"
    assert await first.stock() == Stock(1, 0)
    assert await first.reserve("d", 1) == "reserved"


async def test_what_is_sent_twice_counts_once(first: Instance) -> None:
    await first.clerk.deliver(lamps("truck", 3))
    for _ in range(2):
        assert await first.reserve("a", 2) == "reserved"
        assert await first.reserve("b", 2) == "refused"
    for _ in range(2):
        assert (await first.clerk.ship(NORTH, "a")).state == "shipped"
    assert await first.reserve("a", 2) == "shipped"
    assert await first.stock() == Stock(1, 0)
    assert kinds(first.log) == {Delivered: 1, Reserved: 1, Refused: 1, Shipped: 1}


async def test_an_id_stands_for_one_thing(first: Instance) -> None:
    await first.reserve("a", 2)
    for wish in (lamps("a", 1), Pieces(NORTH, "a", "chair", 2), lamps("truck", 3)):
        with pytest.raises(OtherContentError):
            await first.clerk.reserve(wish)
    for wish in (lamps("a", 2), lamps("truck", 4)):
        with pytest.raises(OtherContentError):
            await first.clerk.deliver(wish)
    assert len(events(first.log)) == 2


async def test_an_answer_is_for_good(first: Instance) -> None:
    await first.reserve("a", 1)
    await first.reserve("b", 5)
    await first.reserve("c", 1)
    await first.clerk.ship(NORTH, "a")
    await first.clerk.cancel(NORTH, "c")
    await first.clerk.deliver(lamps("second truck", 10))
    assert [await first.reserve("a", 1), await first.reserve("b", 5), await first.reserve("c", 1)] == [
        "shipped",
        "refused",
        "cancelled",
    ]
    assert (await first.clerk.cancel(NORTH, "a")).state == "shipped"
    assert (await first.clerk.ship(NORTH, "b")).state == "refused"
    assert (await first.clerk.ship(NORTH, "c")).state == "cancelled"
    assert (await first.clerk.ship(NORTH, "truck")).state == "delivered"
    with pytest.raises(UnknownIdError):
        await first.clerk.ship(NORTH, "d")


async def test_the_last_piece_is_reserved_once(first: Instance, second: Instance) -> None:
    """Both instances have decided that it is theirs, and sent it, before the log has taken either."""
    await first.reserve("a", 2)
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(first.reserve("b")), group.create_task(second.reserve("c"))]
        await first.sent(2)
        first.partition.release()
    assert sorted(task.result() for task in asked) == ["refused", "reserved"]
    assert await first.stock() == await second.stock() == Stock(3, 3)


async def test_nothing_is_oversold(first: Instance, second: Instance) -> None:
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task((first, second)[n % 2].reserve(f"order {n}")) for n in range(12)]
    assert Counter(task.result() for task in asked) == {"reserved": 3, "refused": 9}
    assert await first.stock() == await second.stock() == Stock(3, 3)


async def test_an_order_sent_to_two_instances_reserves_once(first: Instance, second: Instance) -> None:
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(one.reserve("a")) for one in (first, second)]
        await first.sent(2)
        first.partition.release()
    assert [task.result() for task in asked] == ["reserved", "reserved"]
    assert kinds(first.log) == {Delivered: 1, Reserved: 1}


async def test_an_id_sent_for_two_things_at_once_is_one_of_them(first: Instance, second: Instance) -> None:
    await first.clerk.deliver(Pieces(NORTH, "chairs", "chair", 1))
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        reserved = group.create_task(first.reserve("a"))
        await first.sent(1)
        other = group.create_task(refused(second.clerk.reserve(Pieces(NORTH, "a", "chair", 1))))
        await first.sent(2)
        first.partition.release()
    assert (reserved.result(), other.result()) == ("reserved", OtherContentError)


@pytest.mark.parametrize("what", ["delivery", "cancellation", "expiry"])
async def test_nobody_is_refused_what_has_just_come_back(
    first: Instance, second: Instance, what: str
) -> None:
    """The refusal was decided before the pieces came back, and reaches the log after them."""
    await first.reserve("a", 3)
    await first.tick(HOLD_TICKS)
    await second.stock()
    steps: dict[str, Callable[[], Coroutine[None, None, object]]] = {
        "delivery": lambda: first.clerk.deliver(lamps("second truck")),
        "cancellation": lambda: first.clerk.cancel(NORTH, "a"),
        "expiry": first.tick,
    }
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(steps[what]())
        await first.sent(1)
        asked = group.create_task(second.reserve("b"))
        await first.sent(2)
        first.partition.release()
    assert asked.result() == "reserved"


async def test_an_order_is_shipped_or_cancelled(first: Instance, second: Instance) -> None:
    await first.reserve("a")
    await second.stock()
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(first.clerk.ship(NORTH, "a")),
            group.create_task(second.clerk.cancel(NORTH, "a")),
        ]
        await first.sent(2)
        first.partition.release()
    one, other = (task.result().state for task in asked)
    assert one == other
    assert len(events(first.log)) == 3


async def test_deliveries_do_not_hold_one_another_up(first: Instance, second: Instance) -> None:
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(first.clerk.deliver(lamps("b")))
        group.create_task(second.clerk.deliver(lamps("c")))
        await first.sent(2)
        first.partition.release()
    assert await first.stock() == Stock(5, 0)


async def test_every_instance_sees_what_another_has_answered(first: Instance, second: Instance) -> None:
    for n in range(20):
        await first.clerk.deliver(Pieces(NORTH, f"truck {n}", "chair", 1))
        assert await second.clerk.stock(NORTH, "chair") == Stock(n + 1, 0)
        await second.clerk.reserve(Pieces(NORTH, f"chair {n}", "chair", 1))
        assert (await first.clerk.ship(NORTH, f"chair {n}")).state == "shipped"
        await first.clerk.deliver(Pieces(NORTH, f"replacement {n}", "chair", 1))


async def test_a_reservation_ends_by_the_clock_of_the_log(first: Instance, second: Instance) -> None:
    await first.reserve("early", 2)
    await first.tick()
    await second.reserve("late", 1)
    await first.tick()
    assert [await second.state("early"), await second.state("late")] == ["reserved", "reserved"]
    await first.tick()
    assert [await second.state("early"), await second.state("late")] == ["expired", "reserved"]
    assert await second.stock() == Stock(3, 1)
    assert (await second.clerk.ship(NORTH, "early")).state == "expired"
    assert await first.reserve("early", 2) == "expired"
    assert await first.reserve("new", 2) == "reserved"
    assert [event for event in events(first.log) if isinstance(event, Ticked)] == [
        Ticked(1, []),
        Ticked(2, []),
        Ticked(3, [lamps("early", 2)]),
    ]


async def test_two_instances_make_one_tick(first: Instance, second: Instance) -> None:
    await first.reserve("a")
    await second.stock()
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        for one in (first, second):
            group.create_task(one.clerk.tick(PARTITION, 0))
        await first.sent(2)
        first.partition.release()
    assert kinds(first.log)[Ticked] == 1


@pytest.mark.parametrize("shipped_first", [True, False])
async def test_an_order_is_shipped_or_expires(first: Instance, second: Instance, shipped_first: bool) -> None:
    await first.reserve("a")
    await first.tick(HOLD_TICKS)
    await second.stock()
    first.partition.hold()
    async with asyncio.TaskGroup() as group:
        steps = [second.clerk.ship(NORTH, "a"), first.clerk.tick(PARTITION, HOLD_TICKS)]
        for number, step in enumerate(steps if shipped_first else reversed(steps), 1):
            group.create_task(step)
            await first.sent(number)
        first.partition.release()
    assert await first.state("a") == ("shipped" if shipped_first else "expired")
    assert await first.stock() == (Stock(2, 0) if shipped_first else Stock(3, 0))
    assert kinds(first.log)[Ticked] == HOLD_TICKS + 1


async def test_the_clock_ticks_while_something_is_reserved(first: Instance, second: Instance) -> None:
    async def keep() -> None:
        async with asyncio.TaskGroup() as group:
            for one in (first, second):
                group.create_task(keep_time(one.clerk, one.store, PARTITION, 0.1))

    async with asyncio.TaskGroup() as group:
        clocks = group.create_task(keep())
        await asyncio.sleep(0.3)
        assert kinds(first.log)[Ticked] == 0
        started = asyncio.get_running_loop().time()
        await first.reserve("a")
        while await second.state("a") != "expired":
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - started >= HOLD_TICKS * 0.1
        await asyncio.sleep(0.3)
        clocks.cancel()
    assert kinds(first.log)[Ticked] == HOLD_TICKS + 1


@pytest.mark.parametrize("arrives", [True, False])
async def test_an_order_whose_answer_got_lost_is_sent_again(
    first: Instance, second: Instance, tmp_path: Path, arrives: bool
) -> None:
    async with Instance(first.log, tmp_path / "third.db", deadline_seconds=1.5) as third:
        first.partition.hold()
        with pytest.raises(OutcomeUnknownError):
            await third.reserve("a", 2)
    if arrives:
        first.partition.release()
    else:
        first.partition.drop()
    assert await second.reserve("a", 2) == "reserved"
    assert await first.stock() == Stock(3, 2)
    assert kinds(first.log) == {Delivered: 1, Reserved: 1}


@pytest.mark.parametrize("failures", ["fail_next", "conflict_next"])
async def test_failures_are_not_the_customers(first: Instance, failures: str) -> None:
    getattr(first.partition, failures)(3)
    assert await first.reserve("a") == "reserved"
    first.log.disconnect()
    assert (await first.clerk.ship(NORTH, "a")).state == "shipped"
    first.partition.remount()
    assert await first.reserve("b") == "reserved"
    assert await first.stock() == Stock(2, 1)


async def test_the_tables_are_a_function_of_the_log(first: Instance, tmp_path: Path) -> None:
    await first.reserve("a")
    first.partition.commit(b"somebody else's")
    first.partition.commit(b"somebody else's", header=CLAIM_OF_THE_SPARK_SINK)
    await first.tick(HOLD_TICKS + 1)
    await first.reserve("b")
    await first.reserve("c", 9)
    await first.clerk.ship(NORTH, "b")
    await first.reserve("d")
    await first.clerk.cancel(NORTH, "d")
    async with Instance(first.log, tmp_path / "new.db") as new:
        assert await new.stock() == Stock(2, 0)
        assert new.tables() == first.tables()
    assert kinds(first.log) == {
        Delivered: 1,
        Reserved: 3,
        Refused: 1,
        Shipped: 1,
        Cancelled: 1,
        Ticked: HOLD_TICKS + 1,
    }


async def test_over_http(tmp_path: Path) -> None:
    log = InProcessLog(2)
    config = Config({"client.mockDriver": log}, f"sqlite:///{tmp_path}/a.db", deadline_seconds=2.0)
    async with instance(config) as app, TestClient(TestServer(app)) as http:

        async def post(path: str, body: object = None) -> tuple[int, object]:
            async with http.post(f"/warehouses/{NORTH}/{path}", json=body) as answer:
                return answer.status, await answer.json()

        def wish(id: str, quantity: object) -> dict[str, object]:
            return {"id": id, "item": "lamp", "quantity": quantity}

        log.partition(PARTITION).commit(b"somebody else's")
        assert (await post("deliveries", wish("truck", 3)))[0] == 201
        assert await post("orders", wish("a", 2)) == (201, {**wish("a", 2), "state": "reserved"})
        assert await post("orders", wish("b", 2)) == (409, {**wish("b", 2), "state": "refused"})
        assert (await post("orders", wish("a", 3)))[0] == 409
        assert (await post("orders/a/ship"))[0] == 200
        assert (await post("orders/a/cancel"))[0] == 409
        assert (await post("orders/x/ship"))[0] == 404
        wrong: list[object] = [wish("", 1), wish("c", 0), wish("c", "many"), {"id": "c"}, []]
        for body in wrong:
            assert (await post("orders", body))[0] == 400
        async with http.get(f"/warehouses/{NORTH}/items/lamp") as answer:
            assert await answer.json() == {"on_hand": 1, "reserved": 0, "available": 1}
        async with http.get(f"/warehouses/{NORTH}/orders/a") as answer:
            assert await answer.json() == {**wish("a", 2), "state": "shipped"}
        async with http.get("/health") as answer:
            assert answer.status == 200
        async with http.get("/metrics") as answer:
            assert 'waltz_client_append_seconds_count{outcome="committed"} 4.0' in await answer.text()
        log.go_down()
        async with http.get(f"/warehouses/{NORTH}/items/lamp") as answer:
            assert answer.status == 503
        async with http.get("/health") as answer:
            assert answer.status == 503
        log.come_up()
        log.partition(PARTITION).commit(b"nonsense", header=HEADERS.header(1))
        async with asyncio.timeout(10):
            while True:
                async with http.get("/health") as answer:
                    if "JSONDecodeError" in (await answer.json()).get(str(PARTITION), ""):
                        assert answer.status == 503
                        break


async def test_a_stop_lets_decisions_end(tmp_path: Path) -> None:
    log = InProcessLog(2)
    log.partition(PARTITION).delay(0.5)
    config = Config({"client.mockDriver": log}, f"sqlite:///{tmp_path}/a.db")
    async with instance(config) as app, TestClient(TestServer(app)) as http:
        body = {"id": "truck", "item": "lamp", "quantity": 3}
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(http.request("POST", f"/warehouses/{NORTH}/deliveries", json=body))
            while not log.partition(PARTITION).waiting:
                await asyncio.sleep(0.01)
            asked.cancel()
    assert kinds(log) == {Delivered: 1}
