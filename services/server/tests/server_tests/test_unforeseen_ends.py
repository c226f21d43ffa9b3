"""An exception that nobody foresaw, in what a connection or the registry does for many: what it concerns
ends, and the others get theirs."""

from __future__ import annotations

import asyncio

import pytest

from waltz_protocol.aio.turns import Turns
from waltz_protocol.frames.append import encode_append
from waltz_protocol.messages.client import CloseCode, CloseNotice
from waltz_protocol.types import ReqId
from waltz_server.partition import append_answers
from waltz_server.partition.feed import Feeds
from waltz_server.partition.owned_partition import PartitionError
from waltz_server.registry import PartitionRegistry
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import PartitionRig


async def test_safety_e1_a_connection_ends_whose_answers_could_not_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client would wait for them, on a connection that is sound."""

    def fail(*_: object) -> bytes:
        raise MemoryError

    async with LoopbackServer({}) as server:
        peer = await server.peer(version=5)
        monkeypatch.setattr(append_answers, "encode_answers", fail)
        peer.write(encode_append(ReqId(1, 2, 3, 4).pack(), -1, (), (), (), 0, b"", 5))
        notice = await peer.read()
        assert isinstance(notice, CloseNotice)
        assert notice.code == CloseCode.INTERNAL_ERROR
        assert await peer.closed_by_server()


async def test_a_partition_that_cannot_forget_a_connection_ends_and_the_rest_forgets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ExceptionGroup) as ended:
        async with PartitionRig() as rig:
            one, other = FakeClient(1), FakeClient(2)
            for client in (one, other):
                await rig.mount(client)
            registry = PartitionRegistry(8, lambda *_: rig.partition)
            registry.partitions[3] = rig.partition
            for client in (one, other):
                registry.connection_opened(client)  # type: ignore[arg-type]
            forget = Feeds.forget

            def fail(feeds: Feeds, client: object) -> None:
                monkeypatch.setattr(Feeds, "forget", forget)
                raise MemoryError

            monkeypatch.setattr(Feeds, "forget", fail)
            for client in (one, other):
                registry.connection_closed(client)  # type: ignore[arg-type]
            assert rig.partition.fault is not None
            assert [rig.partition._mounts.valid(client) for client in (one, other)] == [None, None]
    assert [type(error) for error in ended.value.exceptions] == [PartitionError]


async def test_the_registry_forgets_connections_after_one_that_it_could_not_forget() -> None:
    forgotten: list[object] = []

    class Failing:
        def client_closed(self, client: object) -> None:
            forgotten.append(client)
            if len(forgotten) == 1:
                raise MemoryError

    def make(partition_id: int, generation: int) -> object:
        raise AssertionError

    turns = Turns(turn_units=100, slice_units=50)
    registry = PartitionRegistry(8, make, turns)  # type: ignore[arg-type]
    registry.partitions[0] = Failing()  # type: ignore[assignment]
    turns.spend(1_000)  # so that all of them get in line
    clients = [FakeClient(number) for number in range(5)]
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for client in clients:
        registry.connection_opened(client)  # type: ignore[arg-type]
        registry.connection_closed(client)  # type: ignore[arg-type]
    for _ in range(50):
        await asyncio.sleep(0)
    assert forgotten == clients
