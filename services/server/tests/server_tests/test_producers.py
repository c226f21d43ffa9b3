"""What a server does about named producers for clients without ZooKeeper: what it refuses, how often it asks
ZooKeeper, whom it informs."""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from waltz_cluster.memory_store import Fault, MemoryStore, MemoryZooKeeper
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.producers import ZooKeeperProducers
from waltz_cluster.serializers import MAX_ID, Checkpoint, ProducerRecord
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ProtocolError
from waltz_protocol.messages.client import CloseNotice
from waltz_protocol.messages.directory import ClientIdRequest
from waltz_protocol.messages.fields import CheckpointEntry, Message
from waltz_protocol.messages.producers import (
    ProducerCheckpointsRequest,
    ProducerCode,
    ProducerCreateRequest,
    ProducerEpochRequest,
    ProducerFindRequest,
    ProducerResponse,
    ProducerWatchRequest,
)
from waltz_protocol.types import ReqId
from waltz_server import producers as producers_module
from waltz_server.producers import BURST, MAX_WATCHERS, ProducerDesk
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.loopback_server import LoopbackServer

PATH = "/c/producers/orders"
ASK = ReqId(-1, 0, 0, 2)
MARKS = (CheckpointEntry(0, 5, 9, 3),)


class Desk:
    """A desk on a ZooKeeper in memory."""

    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.store: MemoryStore = self.zookeeper.session()
        self.producers = ZooKeeperProducers(self.store, ClusterPaths("/c"), random.Random(0))
        self.desk = ProducerDesk(self.producers, 4)

    async def ask(self, client: FakeClient, request: Message) -> ProducerResponse:
        """The next answer."""
        before = len(client.of(ProducerResponse))
        self.send(client, request)
        async with asyncio.timeout(5):
            while len(client.of(ProducerResponse)) == before:
                await asyncio.sleep(0.001)
        return client.of(ProducerResponse)[before]

    def send(self, client: FakeClient, request: Message) -> None:
        self.desk.handle(cast("Any", client), memoryview(CLIENT.encode_body(request, 5)))

    async def begin(self, client: FakeClient) -> None:
        assert (
            await self.ask(client, ProducerCreateRequest(ASK, "orders", 7, MARKS))
        ).code == ProducerCode.DONE
        assert (await self.ask(client, ProducerEpochRequest(ASK, "orders", 1))).code == ProducerCode.DONE


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    task = spawn(made.desk.run(), "producers")
    yield made
    task.cancel()


def client() -> FakeClient:
    return FakeClient(-1, version=5)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_the_record_is_that_of_a_client_with_zookeeper(desk: Desk) -> None:
    one = client()
    absent = await desk.ask(one, ProducerFindRequest(ASK, "orders"))
    assert absent == ProducerResponse(ASK, ProducerCode.ABSENT, -1, -1, (), None)
    await desk.begin(one)
    again = await desk.ask(one, ProducerCreateRequest(ASK, "orders", 8, ()))
    assert again.code == ProducerCode.DONE
    found = await desk.ask(one, ProducerFindRequest(ASK, "orders"))
    assert found == ProducerResponse(ASK, ProducerCode.DONE, 7, 1, MARKS, None)
    further = (CheckpointEntry(0, 5, 20, 4), CheckpointEntry(2, -1, -1, -1))
    assert (
        await desk.ask(one, ProducerCheckpointsRequest(ASK, "orders", 1, further))
    ).code == ProducerCode.DONE
    kept = await desk.producers.find("orders")
    assert kept == ProducerRecord(7, 1, {0: Checkpoint(5, 20, 4), 2: Checkpoint(-1, -1)})


async def test_a_record_that_zookeeper_does_not_take_is_refused(desk: Desk) -> None:
    """In a cluster of very many partitions. Its client asked one server after the other, without an end."""
    desk.desk = ProducerDesk(desk.producers, 50_000)
    task = spawn(desk.desk.run(), "many partitions")
    marks = tuple(CheckpointEntry(partition_id, -1, -1, -1) for partition_id in range(50_000))
    answer = await desk.ask(client(), ProducerCreateRequest(ASK, "orders", 7, marks))
    task.cancel()
    assert answer.code == ProducerCode.REFUSED
    assert (answer.text or "").startswith(f"{PATH} would have 1200013 bytes")


async def test_safety_e8_an_epoch_is_raised_from_the_one_right_before_it_only(desk: Desk) -> None:
    one = client()
    await desk.begin(one)
    for wanted in (1, 3, 9, MAX_ID):
        answer = await desk.ask(one, ProducerEpochRequest(ASK, "orders", wanted))
        assert (answer.code, answer.epoch) == (ProducerCode.OTHER_EPOCH, 1)
    answer = await desk.ask(one, ProducerEpochRequest(ASK, "orders", 2))
    assert (answer.code, answer.epoch, answer.client_id) == (ProducerCode.DONE, 2, 7)
    older = await desk.ask(one, ProducerCheckpointsRequest(ASK, "orders", 1, MARKS))
    assert (older.code, older.epoch) == (ProducerCode.OTHER_EPOCH, 2)
    await desk.store.delete(PATH)
    assert (await desk.ask(one, ProducerEpochRequest(ASK, "orders", 3))).code == ProducerCode.ABSENT


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
async def test_an_epoch_whose_write_has_no_certain_outcome_is_not_given(desk: Desk, fault: Fault) -> None:
    one = client()
    await desk.begin(one)
    lost = [fault]
    desk.store.fault = lambda operation, _: lost.pop() if operation == "set" and lost else None
    answer = await desk.ask(one, ProducerEpochRequest(ASK, "orders", 2))
    if fault is Fault.LOSE_REPLY:
        assert (answer.code, answer.epoch) == (ProducerCode.OTHER_EPOCH, 2)
    else:
        assert (answer.code, answer.epoch) == (ProducerCode.DONE, 2)


@pytest.mark.parametrize(
    "request_",
    [
        ProducerFindRequest(ASK, None),
        ProducerFindRequest(ASK, ""),
        ProducerFindRequest(ASK, "a/b"),
        ProducerFindRequest(ASK, "a" * 1_000_000),
        ProducerWatchRequest(ASK, ".."),
        ProducerEpochRequest(ASK, "orders", 0),
        ProducerEpochRequest(ASK, "orders", -1),
        ProducerCreateRequest(ASK, "orders", 0, ()),
        ProducerCreateRequest(ASK, "orders", 1, (CheckpointEntry(4, -1, -1, -1),)),
        ProducerCreateRequest(ASK, "orders", 1, (CheckpointEntry(-1, -1, -1, -1),)),
        ProducerCreateRequest(ASK, "orders", 1, (CheckpointEntry(1, 3, 2, -1),)),
        ProducerCreateRequest(ASK, "orders", 1, (CheckpointEntry(1, -2, 2, -1),)),
        ProducerCheckpointsRequest(ASK, "orders", 1, (CheckpointEntry(1, 1, 2, -2),)),
        ProducerCheckpointsRequest(ASK, "orders", 1, (CheckpointEntry(1, 1, 2, 2),) * 2),
        ProducerCheckpointsRequest(ASK, "orders", 0, ()),
    ],
)
async def test_what_no_record_can_have_is_refused_with_a_sentence(desk: Desk, request_: Message) -> None:
    answer = await desk.ask(client(), request_)
    assert answer.code == ProducerCode.REFUSED
    assert answer.text
    assert len(answer.text) < 500


async def test_a_connection_asks_about_one_producer(desk: Desk) -> None:
    one = client()
    await desk.ask(one, ProducerFindRequest(ASK, "orders"))
    for request in (ProducerFindRequest(ASK, "invoices"), ProducerWatchRequest(ASK, "invoices")):
        other = await desk.ask(one, request)
        assert (other.code, other.text) == (
            ProducerCode.REFUSED,
            "a connection asks about one producer, and this one has asked about orders",
        )


async def test_a_connection_that_asks_too_often_hears_so(desk: Desk) -> None:
    one = client()
    for _ in range(3 * BURST):
        desk.send(one, ProducerFindRequest(ASK, "orders"))
    await until(lambda: len(one.of(ProducerResponse)) == 3 * BURST)
    refused = [each for each in one.of(ProducerResponse) if each.code == ProducerCode.LATER]
    assert len(refused) >= 2 * BURST - 2
    assert "asks too often about the producer orders" in (refused[0].text or "")
    assert (await desk.ask(client(), ProducerFindRequest(ASK, "orders"))).code == ProducerCode.ABSENT


async def test_a_request_with_more_checkpoints_than_partitions_does_not_hold_the_loop_up() -> None:
    """131,072 checkpoints, which take 150 ms to decode and check."""
    idle, one = Desk(), client()
    entries = tuple(CheckpointEntry(each, each, each, each) for each in range(131_072))
    body = memoryview(CLIENT.encode_body(ProducerCheckpointsRequest(ASK, "orders", 1, entries), 5))
    taken = []
    for _ in range(3 * BURST):
        begun = time.perf_counter()
        idle.desk.handle(cast("Any", one), body)
        taken.append(time.perf_counter() - begun)
    answers = one.of(ProducerResponse)
    assert [answer.code for answer in answers[:BURST]] == [ProducerCode.REFUSED] * BURST
    assert answers[0].text == f"a request about a producer has {len(body)} bytes, more than 608"
    assert answers[-1].code == ProducerCode.LATER, "what is refused counts for how often a connection asks"
    assert min(taken) < 0.005, f"the loop was held up for {min(taken) * 1000:.0f} ms by a frame"


async def test_the_longest_request_of_a_cluster_is_taken(desk: Desk) -> None:
    entries = tuple(CheckpointEntry(each, -1, each, each) for each in range(4))
    answer = await desk.ask(client(), ProducerCreateRequest(ASK, "o" * 100, 7, entries))
    assert answer.code == ProducerCode.DONE


async def test_too_many_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "MAX_WAITING", 2)
    idle, one = Desk(), client()
    for _ in range(3):
        idle.send(one, ProducerFindRequest(ASK, "orders"))
    (answer,) = one.of(ProducerResponse)
    assert (answer.code, answer.text) == (
        ProducerCode.LATER,
        "too many requests about producers wait at this server",
    )


def many(count: int) -> tuple[CheckpointEntry, ...]:
    return tuple(CheckpointEntry(one, 10**9 + one, 10**10 + one, 10**8 + one) for one in range(count))


async def test_what_waits_is_bounded_in_memory() -> None:
    """A cluster of 1,000 partitions, workers that wait for ZooKeeper, and more than the line takes."""
    idle = Desk()
    idle.desk = ProducerDesk(idle.producers, 1000)
    body = memoryview(CLIENT.encode_body(ProducerCheckpointsRequest(ASK, "orders", 1, many(1000)), 5))
    clients = [client() for _ in range(264)]
    tracemalloc.start()
    try:
        for one in clients:
            for _ in range(2):
                idle.desk.handle(cast("Any", one), body)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 128 * 1024 * 1024
    said = [[answer.text for answer in one.of(ProducerResponse)] for one in clients]
    unanswered = "the connection has an unanswered write to the producer orders"
    too_many = "too many requests about producers wait at this server"
    assert said == [[unanswered]] * 262 + [[too_many] * 2] * 2
    for one in clients[:262]:
        idle.desk.forget(cast("Any", one))
    assert not idle.desk._line
    assert idle.desk._checkpoints == 0
    idle.desk.handle(cast("Any", clients[-1]), body)
    assert len(idle.desk._line) == 1, "who has gone keeps nobody out"


async def test_a_write_follows_the_answer_to_the_one_before(desk: Desk) -> None:
    one = client()
    await desk.begin(one)
    for mark in (20, 30):
        written = ProducerCheckpointsRequest(ASK, "orders", 1, (CheckpointEntry(0, 5, mark, 4),))
        assert (await desk.ask(one, written)).code == ProducerCode.DONE
    assert desk.desk._checkpoints == 0


async def test_one_request_with_more_checkpoints_than_may_wait_is_taken(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_module, "MAX_WAITING_CHECKPOINTS", 2)
    assert (
        await desk.ask(client(), ProducerCreateRequest(ASK, "orders", 7, many(4)))
    ).code == ProducerCode.DONE


async def test_the_number_of_producers_is_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "MAX_PRODUCERS", 2)
    for name in ("orders", "invoices", "orders"):
        assert (await desk.ask(client(), ProducerCreateRequest(ASK, name, 7, ()))).code == ProducerCode.DONE
    third = await desk.ask(client(), ProducerCreateRequest(ASK, "third", 7, ()))
    assert third.code == ProducerCode.REFUSED
    assert "the cluster has 2 named producers" in (third.text or "")


async def test_many_partitions_have_fewer_producers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a checkpoint of every partition, of which there are 4."""
    monkeypatch.setattr(producers_module, "MAX_CHECKPOINTS", 11)
    for name in ("orders", "invoices", "orders"):
        assert (await desk.ask(client(), ProducerCreateRequest(ASK, name, 7, ()))).code == ProducerCode.DONE
    third = await desk.ask(client(), ProducerCreateRequest(ASK, "third", 7, ()))
    assert third.code == ProducerCode.REFUSED
    assert "the cluster has 2 named producers" in (third.text or "")


async def test_a_frozen_zookeeper_holds_nobody_up_for_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_module, "ANSWER_SECONDS", 0.2)

    async def never(name: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(desk.producers, "find", never)
    clients = [client() for _ in range(100)]
    for one in clients:
        desk.send(one, ProducerFindRequest(ASK, "orders"))
    await until(lambda: all(one.of(ProducerResponse) for one in clients))
    assert {(one.of(ProducerResponse)[0].code, one.of(ProducerResponse)[0].text) for one in clients} == {
        (ProducerCode.LATER, "ZooKeeper did not answer within 0.2 s")
    }


async def test_what_a_connection_that_has_gone_asked_for_is_not_done() -> None:
    idle, one, gone = Desk(), client(), client()
    await idle.producers.create("orders", ProducerRecord(7, 0))
    idle.send(gone, ProducerEpochRequest(ASK, "orders", 1))
    gone.closed = True
    task = spawn(idle.desk.run(), "producers")
    for _ in range(5):  # other workers are asked meanwhile
        assert (await idle.ask(one, ProducerFindRequest(ASK, "orders"))).epoch == 0
    task.cancel()


async def test_all_who_watch_are_informed_of_each_epoch_by_one_watch(desk: Desk) -> None:
    watchers = [client() for _ in range(20)]
    await desk.begin(client())
    reads = 0

    def count(operation: str, path: str) -> None:
        nonlocal reads
        reads += operation == "get" and path == PATH

    desk.store.fault = count
    for one in watchers:
        assert (await desk.ask(one, ProducerWatchRequest(ASK, "orders"))).epoch == 1
    assert reads == 1
    await desk.producers.write_checkpoints("orders", 1, {0: Checkpoint(5, 50, 5)})  # no new epoch
    await asyncio.sleep(0.05)
    assert all(len(one.of(ProducerResponse)) == 1 for one in watchers)
    left, *others = watchers
    desk.desk.forget(cast("Any", left))
    await desk.producers.raise_epoch("orders")
    await until(lambda: all(len(one.of(ProducerResponse)) == 2 for one in others))
    assert {one.of(ProducerResponse)[1].epoch for one in others} == {2}
    assert len(left.of(ProducerResponse)) == 1
    await desk.store.delete(PATH)
    await until(lambda: all(one.of(ProducerResponse)[-1].code == ProducerCode.ABSENT for one in others))
    assert not desk.desk._watched


async def test_so_few_watch_a_producer_that_a_change_of_epoch_does_not_hold_the_loop_up(desk: Desk) -> None:
    await desk.begin(client())
    watchers = [client() for _ in range(1000)]
    for one in watchers:
        desk.send(one, ProducerWatchRequest(ASK, "orders"))
    await until(lambda: all(one.of(ProducerResponse) for one in watchers))
    first, others = watchers[:MAX_WATCHERS], watchers[MAX_WATCHERS:]
    assert {one.of(ProducerResponse)[0].epoch for one in first} == {1}
    assert {(one.of(ProducerResponse)[0].code, one.of(ProducerResponse)[0].text) for one in others} == {
        (ProducerCode.LATER, "32 connections watch the producer orders at this server already")
    }
    assert (await desk.ask(first[0], ProducerWatchRequest(ASK, "orders"))).epoch == 1, "it is one of them"
    await desk.producers.raise_epoch("orders")
    await until(lambda: all(one.of(ProducerResponse)[-1].epoch == 2 for one in first))
    assert all(len(one.of(ProducerResponse)) == 1 for one in others)
    desk.desk.forget(cast("Any", first[0]))
    assert (await desk.ask(others[0], ProducerWatchRequest(ASK, "orders"))).epoch == 2


async def test_connections_that_come_and_go_leave_one_watch_behind(desk: Desk) -> None:
    await desk.begin(client())
    reads = 0

    def count(operation: str, path: str) -> None:
        nonlocal reads
        reads += operation == "get" and path == PATH

    desk.store.fault = count
    for _ in range(10):
        one = client()
        assert (await desk.ask(one, ProducerWatchRequest(ASK, "orders"))).epoch == 1
        desk.desk.forget(cast("Any", one))
    assert reads == 1
    assert len(desk.desk._askers) == 1  # who began the producer
    await desk.producers.raise_epoch("orders")
    await until(lambda: not desk.desk._watched)
    assert (await desk.ask(client(), ProducerWatchRequest(ASK, "orders"))).epoch == 2


async def test_who_watches_is_informed_when_zookeeper_goes_and_asks_again(desk: Desk) -> None:
    await desk.begin(client())
    one = client()
    assert (await desk.ask(one, ProducerWatchRequest(ASK, "orders"))).epoch == 1
    desk.store.suspend()
    await until(lambda: len(one.of(ProducerResponse)) == 2)
    assert one.of(ProducerResponse)[1].code == ProducerCode.LATER
    desk.store.resume()
    await desk.zookeeper.session().set(PATH, ProducerRecord(7, 5).to_bytes())
    assert (await desk.ask(one, ProducerWatchRequest(ASK, "orders"))).epoch == 5


async def test_an_epoch_that_changes_while_it_is_read_is_read_again(desk: Desk) -> None:
    await desk.begin(client())
    newest = desk.producers.newest_epoch

    async def slowly(name: str, changed: Callable[[], None]) -> int:
        epoch = await newest(name, changed)
        if epoch == 1:
            await desk.producers.raise_epoch(name)
            await asyncio.sleep(0.05)
        return epoch

    desk.producers.newest_epoch = slowly  # type: ignore[method-assign]
    one, two = client(), client()
    desk.send(one, ProducerWatchRequest(ASK, "orders"))
    await asyncio.sleep(0.02)
    desk.send(two, ProducerWatchRequest(ASK, "orders"))
    for each in (one, two):
        await until(lambda each=each: bool(each.of(ProducerResponse)))  # type: ignore[misc]
        await until(lambda each=each: each.of(ProducerResponse)[-1].epoch == 2)  # type: ignore[misc]


async def test_hostile_bytes_end_the_connection() -> None:
    async with LoopbackServer({0: 1}) as server:
        body = CLIENT.encode_body(ProducerCreateRequest(ASK, "orders", 7, MARKS), 5)
        for wrong in (body + b"x", body[:-1], body[:20]):
            peer = await server.peer(version=5)
            peer.write(bytes([0x4C, 0, 5]) + len(wrong).to_bytes(4, "big") + wrong)
            assert isinstance(await peer.read(), CloseNotice)
            assert await peer.closed_by_server()
        old = await server.peer(version=4)
        old.write(bytes([0x4C, 0, 4]) + len(body).to_bytes(4, "big") + body)
        assert await old.closed_by_server()
    desk = Desk()
    for not_ours in (ProducerResponse(ASK, 0, 1, 1, (), None), ClientIdRequest(ASK)):
        with pytest.raises(ProtocolError, match="is not for servers"):
            desk.send(client(), not_ours)
