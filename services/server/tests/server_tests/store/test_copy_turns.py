"""The budget of copies on the connection to one storage node."""

from __future__ import annotations

import asyncio

import pytest

from server_tests.store.fakes import Cluster, Server, entries, until
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.errors import RequestTimeoutError
from waltz_server.store.api import StoreSettings
from waltz_server.store.copy_turns import CopyTurns

pytestmark = pytest.mark.looptime


class _Partitions:
    """Those who take turns; `got` in the order in which they got them."""

    def __init__(self, turns: CopyTurns) -> None:
        self.turns = turns
        self.got: list[str] = []

    async def take(self, name: str, size_bytes: int) -> None:
        await self.turns.take(size_bytes)
        self.got.append(name)

    async def ask(self, *wanted: tuple[str, int]) -> list[asyncio.Task[None]]:
        tasks = [spawn(self.take(name, size), name=name) for name, size in wanted]
        await asyncio.sleep(0)
        return tasks


async def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    partitions = _Partitions(CopyTurns(10))
    await partitions.ask(("a", 6), ("b", 6), ("c", 1), ("d", 4))
    assert partitions.got == ["a"]  # c would fit, and waits for b
    partitions.turns.give_back(6)
    await asyncio.sleep(0)
    assert partitions.got == ["a", "b", "c"]
    partitions.turns.give_back(1)
    await asyncio.sleep(0)
    assert partitions.got == ["a", "b", "c", "d"]
    assert partitions.turns.in_use_bytes == 10


async def test_one_batch_is_let_in_however_large() -> None:
    partitions = _Partitions(CopyTurns(10))
    await partitions.ask(("a", 100), ("b", 100))
    assert partitions.got == ["a"]
    partitions.turns.give_back(100)
    await asyncio.sleep(0)
    assert partitions.got == ["a", "b"]


async def test_who_is_cancelled_keeps_nothing_and_holds_up_nobody() -> None:
    partitions = _Partitions(CopyTurns(10))
    _, waits, _ = await partitions.ask(("a", 6), ("b", 9), ("c", 4))
    waits.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert partitions.got == ["a", "c"]
    (got,) = await partitions.ask(("d", 8))
    partitions.turns.give_back(6)
    partitions.turns.give_back(4)
    got.cancel()  # in the loop turn in which it got its turn
    await asyncio.gather(got, return_exceptions=True)
    assert partitions.got == ["a", "c"]
    assert partitions.turns.in_use_bytes == 0


async def test_a_node_that_does_not_answer_costs_all_who_wait_for_it_one_time_limit() -> None:
    turns = CopyTurns(10)

    async def read() -> None:
        async with turns.turn(10):
            await asyncio.sleep(2)
            raise RequestTimeoutError("no answer")

    began = asyncio.get_running_loop().time()
    ends = await asyncio.gather(*(read() for _ in range(50)), return_exceptions=True)
    assert all(isinstance(end, RequestTimeoutError) for end in ends)
    assert asyncio.get_running_loop().time() - began < 2.1
    assert turns.in_use_bytes == 0
    async with turns.turn(10):
        assert turns.in_use_bytes == 10


SETTINGS = StoreSettings(catch_up_batch_records=3, replica_backlog_bytes=200, copy_budget_bytes=1000)


def in_use(server: Server) -> int:
    directory = server.directory
    return sum(
        turns.in_use_bytes
        for name in server._cluster.names
        for turns in (directory.copies_to(name), directory.copies_from(name))
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("direction", ["copies_to", "copies_from"])
async def test_safety_d7_a_replica_that_falls_behind_is_filled_in_its_turn(
    version: int, direction: str
) -> None:
    async with Cluster() as cluster:
        for node in cluster.nodes.values():
            node.version = version
        server = cluster.server(settings=SETTINGS)
        await server.opened()
        names = ["c:1"] if direction == "copies_to" else ["a:1", "b:1"]
        for name in names:  # other partitions have it all
            await getattr(server.directory, direction)(name).take(1000)
        behind = cluster.nodes["c:1"]
        behind.delay_seconds = 0.5
        for _ in range(60):
            await server.append(entries(1))
        behind.delay_seconds = 0.0
        await asyncio.sleep(20)
        assert behind.max_txid < 59
        for name in names:
            getattr(server.directory, direction)(name).give_back(1000)
        await until(lambda: behind.max_txid == 59)
        cluster.check_equal(59)
        assert in_use(server) == 0


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("direction", ["copies_to", "copies_from"])
async def test_safety_d7_a_replica_that_is_recovered_is_filled_in_its_turn(
    version: int, direction: str
) -> None:
    async with Cluster() as cluster:
        for node in cluster.nodes.values():
            node.version = version
        first = cluster.server(settings=SETTINGS)
        await first.opened()
        await first.append(entries(30))
        await until(lambda: all(n.max_txid == 29 for n in cluster.nodes.values()))
        await first.crash()
        lost = cluster.nodes["c:1"]
        lost.wipe()
        server = cluster.server(generation=2, settings=SETTINGS)
        names = ["c:1"] if direction == "copies_to" else ["a:1", "b:1"]
        for name in names:
            await getattr(server.directory, direction)(name).take(1000)
        await server.opened()
        await asyncio.sleep(5)
        assert lost.max_txid == -1
        for name in names:
            getattr(server.directory, direction)(name).give_back(1000)
        await until(lambda: lost.max_txid == 29)
        cluster.check_equal(29)
        assert in_use(server) == 0


@pytest.mark.parametrize("fault", ["kill", "hang", "refuse"])
async def test_a_copy_that_fails_gives_its_bytes_back(fault: str) -> None:
    async with Cluster() as cluster:
        server = cluster.server(settings=SETTINGS)
        await server.opened()
        behind = cluster.nodes["c:1"]
        behind.delay_seconds = 0.4
        for _ in range(60):
            await server.append(entries(1))
        await until(lambda: server.directory.copies_to("c:1").in_use_bytes > 0)
        match fault:
            case "kill":
                behind.kill()
            case "hang":
                behind.answers = False
            case _:
                behind.refuse = lambda kind, _: "no" if kind == "append" else None
        await asyncio.sleep(5)
        assert server.directory.copies_to("c:1").in_use_bytes == 0
        behind.delay_seconds, behind.refuse, behind.answers = 0.0, None, True
        if fault == "kill":
            behind.start()
        await until(lambda: behind.max_txid == 59, 60)
        assert in_use(server) == 0
