"""What connections share has a share for each, and what piles up for many is worked off in turns. Counted,
never timed."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from waltz_protocol.aio.turns import Turns
from waltz_protocol.messages.client import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountResponse,
    MountState,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    TransactionDataResponse,
)
from waltz_protocol.types import ReqId
from waltz_server import connection as connection_module
from waltz_server.admin_rpc import MAX_WAITING_PER_CLIENT
from waltz_server.partition import held_reads, pending_answers
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_server.registry import PartitionRegistry
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import GENERATION, PartitionRig

R = ReqId(1, 0, 0, 0)


async def test_a_connection_cannot_fill_the_desk_of_connectivity_checks() -> None:
    async with LoopbackServer({}) as server:
        gate = asyncio.Event()

        async def check() -> dict[str, bool]:
            await gate.wait()
            return {"st1:55280": True}

        server.check = check
        modest, greedy = await server.peer(), await server.peer()
        for _ in range(MAX_WAITING_PER_CLIENT + 1):
            greedy.send(CheckStorageConnectivityRequest(R))
        assert await greedy.closed_by_server()
        modest.send(CheckStorageConnectivityRequest(R))
        gate.set()
        assert await modest.read() == CheckStorageConnectivityResponse(R, {"st1:55280": True})
        for _ in range(3 * MAX_WAITING_PER_CLIENT):  # one after another is no crowd
            modest.send(CheckStorageConnectivityRequest(R))
            await modest.read()


async def test_a_connection_cannot_fill_the_desk_of_preferences() -> None:
    class Preferences:
        def __init__(self) -> None:
            self.gate = asyncio.Event()

        async def add_preferred(self, partitions: Any) -> None:
            await self.gate.wait()

        remove_preferred = add_preferred

    async with LoopbackServer({}) as server:
        server.admin.preferences = preferences = Preferences()
        modest, greedy = await server.peer(), await server.peer()
        for _ in range(MAX_WAITING_PER_CLIENT + 2):  # one of them is being worked on
            greedy.send(AddPreferredPartitionRequest(R, (1,)))
        assert await greedy.closed_by_server()
        modest.send(AddPreferredPartitionRequest(R, (2,)))
        preferences.gate.set()
        assert await modest.read() == AddPreferredPartitionResponse(R, True)


async def test_lists_of_partitions_are_made_once_per_turn() -> None:
    """For everybody who asks in it, each with his own request id; the next turn sees what is then."""
    async with LoopbackServer({0: 1, 3: 1}) as server:
        await asyncio.sleep(0)
        made = [0, 0]
        owned, healthy = server.registry.owned_ids, server.registry.healthy

        def counted_owned() -> list[int]:
            made[0] += 1
            return owned()

        def counted_healthy() -> dict[int, bool]:
            made[1] += 1
            return healthy()

        server.registry.owned_ids = counted_owned  # type: ignore[method-assign]
        server.registry.healthy = counted_healthy  # type: ignore[method-assign]
        peer = await server.peer()
        asked = [ReqId(1, 0, 0, number) for number in range(50)]
        for req_id in asked:
            peer.send(ServerPartitionsAssignmentRequest(req_id))
            peer.send(ServerPartitionsHealthStatRequest(req_id))
        answers = [await peer.read() for _ in range(100)]
        assert answers[::2] == [ServerPartitionsAssignmentResponse(req_id, (0, 3)) for req_id in asked]
        assert answers[1::2] == [
            ServerPartitionsHealthStatResponse(req_id, {0: True, 3: True}) for req_id in asked
        ]
        assert max(made) <= 10
        server.backend.stores[3].lose_session("no quorum")
        peer.send(ServerPartitionsHealthStatRequest(R))
        assert await peer.read() == ServerPartitionsHealthStatResponse(R, {0: True, 3: False})


async def test_who_asks_on_and_does_not_read_has_a_share_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bound over all connections, far below that of one; one that reads is not concerned."""
    monkeypatch.setattr(connection_module, "UNREAD_BYTES", 4 << 20)
    async with LoopbackServer({0: 1}) as server:
        await asyncio.sleep(0)
        deaf, reading = await server.peer(), await server.peer()
        question = HighWaterMarkRequest(R)
        for _ in range(100):
            for _ in range(10_000):
                deaf.send(question)
            await asyncio.sleep(0)
            reading.send(question)
            assert await reading.read() == HighWaterMarkResponse(R, -1)
            if "asks on and does not read" in caplog.text:
                break
        assert "asks on and does not read" in caplog.text
        while server.registry.connection_count > 1:  # its end follows in a later turn
            await asyncio.sleep(0)


async def test_connections_that_end_at_once_are_forgotten_in_turns() -> None:
    """Each may have asked something of every partition; the loop has turns in between."""
    turns = Turns(turn_units=100, slice_units=50)
    forgotten: list[int] = []
    turn = 0

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(next_turn)

    class Counting:
        def client_closed(self, client: object) -> None:
            forgotten.append(turn)

    def make(partition_id: int, generation: int) -> Any:
        raise AssertionError

    registry = PartitionRegistry(8, make, turns)
    registry.partitions[0] = Counting()  # type: ignore[assignment]
    connections: list[Any] = [FakeClient(number) for number in range(200)]
    for connection in connections:
        registry.connection_opened(connection)
    next_turn()
    for connection in connections:
        registry.connection_closed(connection)
    assert registry.connection_count == 0
    while len(forgotten) < 200:
        await asyncio.sleep(0)
        assert turn < 500
    assert max(forgotten.count(number) for number in set(forgotten)) <= 10


async def test_a_quiet_end_is_forgotten_at_once() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        registry = PartitionRegistry(8, lambda *_: rig.partition)
        registry.partitions[3] = rig.partition
        registry.connection_opened(client)  # type: ignore[arg-type]
        registry.connection_closed(client)  # type: ignore[arg-type]
        assert rig.partition._mounts.valid(client) is None


async def test_flushes_that_are_ready_together_are_answered_in_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_answers, "ANSWERS_PER_ROUND", 10)
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.append(client)
        asked = [rig.flush(client) for _ in range(95)]
        await rig.turns()
        confirmed = rig.store.confirm_calls
        rig.store.commit_next()
        seen = [0]
        while seen[-1] < 95:
            await asyncio.sleep(0)
            seen.append(len(client.of(FlushResponse)))
            assert len(seen) < 500
        assert max(after - before for before, after in itertools.pairwise(seen)) <= 10
        assert client.of(FlushResponse) == [FlushResponse(req_id, 0) for req_id in asked]
        assert rig.store.confirm_calls - confirmed == 10  # each round is confirmed (safety D4)


async def test_mounts_that_expire_together_are_refused_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_answers, "ANSWERS_PER_ROUND", 10)
    settings = PartitionSettings(mount_wait_seconds=0.01)
    async with PartitionRig(open_at_once=False, settings=settings) as rig:
        client = FakeClient()
        for _ in range(35):
            rig.partition.mount(client, rig.req_id(client).pack(), GENERATION, -1)
        seen = [0]
        async with asyncio.timeout(10):
            while seen[-1] < 35:
                await asyncio.sleep(0)
                seen.append(len(client.messages()))
        assert max(after - before for before, after in itertools.pairwise(seen)) <= 10
        assert {message.state for message in client.of(MountResponse)} == {MountState.NOT_READY}


async def test_held_reads_are_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a recovery each of them may be a question to the storage nodes; all are answered, once
    and in order."""
    monkeypatch.setattr(held_reads, "ANSWERS_PER_TURN", 10)
    async with PartitionRig(records=100, open_at_once=False) as rig:
        client, gone = FakeClient(1), FakeClient(2)
        handled: list[int] = []
        monkeypatch.setattr(rig.partition._data, "handle", lambda client, req_id, txid: handled.append(txid))
        for transaction_id in range(35):
            rig.read(client, transaction_id)
            rig.read(gone, transaction_id)
        rig.store.open_session()
        steps = [len(handled)]
        rig.partition.client_closed(gone)
        while rig.partition._held_reads:
            await asyncio.sleep(0)
            steps.append(len(handled))
        assert max(after - before for before, after in itertools.pairwise(steps)) == 10
        assert handled == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, *range(5, 35)]


async def test_held_reads_are_refused_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """When they have waited too long, and when the partition leaves."""
    monkeypatch.setattr(held_reads, "ANSWERS_PER_TURN", 10)
    loop = asyncio.get_running_loop()
    for wait_seconds in (0.0, 60.0):
        client = FakeClient()
        held = held_reads.HeldReads(wait_seconds, loop)
        for number in range(35):
            held.hold(client, number % 3, ReqId(1, 2, 3, number).pack(), 0)
        if wait_seconds:
            held.close()
        steps = [len(client.messages())]
        while held:
            await asyncio.sleep(0)
            steps.append(len(client.messages()))
        assert max(after - before for before, after in itertools.pairwise(steps)) == 10
        assert [message.req_id.seq_num for message in client.of(TransactionDataResponse)] == [*range(35)]


async def test_held_reads_of_one_partition_are_found_without_a_look_at_the_others() -> None:
    held = held_reads.HeldReads(60.0, asyncio.get_running_loop())
    clients = [FakeClient(number) for number in range(4)]
    for number in range(40):
        held.hold(clients[number % 4], number % 5, b"", number)
    held.forget(clients[0])
    taken = [[read.transaction_id for read in held.take(partition_id)] for partition_id in range(5)]
    assert taken == [[n for n in range(40) if n % 5 == of and n % 4] for of in range(5)]
    assert (len(held), held._of_client, held._of_partition) == (0, {}, {})
    held.close()
