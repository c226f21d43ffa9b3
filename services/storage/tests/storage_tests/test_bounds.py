"""What one request, or one connection, of the storage and admin ports may cost: counted, never timed."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from waltz_protocol.buffer import MAX_LIST_INTEGERS
from waltz_protocol.codec import ADMIN, STORAGE, Protocol
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import Magic, frame
from waltz_protocol.messages import admin, storage
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.engine.layout import wire_to_disk
from waltz_storage.service.admin_handler import MAX_REQUEST_BYTES, MetricsDesk
from waltz_storage.service.data_handler import SMALL_MESSAGE_BYTES
from waltz_storage.service.requests import STEP_RECORDS, parse_append, parse_append_in_steps

from .node_support import admin_connected, connected, raw_connection, records, running_node
from .support import KEY, wire_records
from .test_hostile_limits import append_body

PARTITIONS = 4
OPENING: dict[bool, Any] = {
    False: storage.OpenRequest(-1, -1, -1, KEY, PARTITIONS),
    True: admin.OpenRequest(-1, KEY, PARTITIONS),
}


async def test_many_flags_of_few_partitions_sync_once_for_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 mentions in one list: as many updates of the control file as there are partitions in it."""
    async with running_node(tmp_path, assign=(0, 1)) as node, raw_connection(node, admin=True) as tool:
        await tool.ask(OPENING[True])
        updates: list[int] = []
        update = node.manager.control.update

        def counted(partition_id: int, change: Any) -> Any:
            updates.append(partition_id)
            return update(partition_id, change)

        monkeypatch.setattr(node.manager.control, "update", counted)
        ids = (1, 0, 3) * 7_000
        assert await tool.ask(admin.PartitionAvailableRequest(1, ids, False)) == admin.SuccessResponse(1)
        assert updates == [1, 0, 3]  # in the order of the list
        assert node.manager.status() == {0: False, 1: False}
        updates.clear()
        assert await tool.ask(
            admin.PartitionAssignmentRequest(2, (2,) * 9_000, True)
        ) == admin.SuccessResponse(2)
        assert updates == [2]
        assert node.manager.status() == {0: False, 1: False, 2: True}


@pytest.mark.parametrize(
    "kind", [admin.PartitionAvailableRequest.TYPE, admin.PartitionAssignmentRequest.TYPE]
)
async def test_a_list_longer_than_any_cluster_has_partitions_ends_the_connection(
    tmp_path: Path, kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path, assign=(0,)) as node:
        async with raw_connection(node, admin=True) as tool:
            await tool.ask(OPENING[True])
            body = struct.pack(">bqi", kind, 1, MAX_LIST_INTEGERS + 1) + bytes(4 * MAX_LIST_INTEGERS + 5)
            await tool.send(frame(Magic.ADMIN, 0, body))
            assert await tool.is_closed()
        async with raw_connection(node, admin=True) as tool:
            await tool.ask(OPENING[True])
            await tool.send(frame(Magic.ADMIN, 0, bytes(15_000_000))[:7])
            assert await tool.is_closed()  # by its header alone
        assert node.manager.status() == {0: True}
    told = [text for text in caplog.messages if text.startswith("127.0.0.1:")]
    assert sum(f"a list of {MAX_LIST_INTEGERS + 1} integers, more than" in text for text in told) == 1
    assert sum(f"15000000 bytes exceeds the limit of {MAX_REQUEST_BYTES}" in text for text in told) == 1


async def test_the_longest_list_of_a_cluster_is_taken(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node, raw_connection(node, admin=True) as tool:
        await tool.ask(OPENING[True])
        ids = tuple(range(PARTITIONS)) * (MAX_LIST_INTEGERS // PARTITIONS)
        assert await tool.ask(admin.PartitionAvailableRequest(1, ids, True)) == admin.SuccessResponse(1)


@pytest.mark.parametrize("on_admin", [False, True])
async def test_a_large_reply_sent_as_a_request_is_not_decoded(
    tmp_path: Path, on_admin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of a million stack elements, or of records, has no business here: it costs no object."""
    decoded: list[int] = []
    decode = Protocol.decode

    def counted(self: Protocol, body: Any, version: int) -> Any:
        decoded.append(len(body))
        return decode(self, body, version)

    monkeypatch.setattr(Protocol, "decode", counted)
    async with running_node(tmp_path, assign=(0,)) as node:
        for kind in (2, 8, 14) if on_admin else (8, 12, 16, 18):
            async with raw_connection(node, admin=on_admin) as peer:
                await peer.ask(OPENING[on_admin])
                magic = Magic.ADMIN if on_admin else Magic.STORAGE
                await peer.send(frame(magic, 0, bytes((kind,)) + bytes(SMALL_MESSAGE_BYTES)))
                assert await peer.is_closed()
    assert max(decoded) < 100


async def test_metrics_are_put_into_words_once_for_all_who_ask_in_one_turn() -> None:
    made: list[str] = []

    class Counted(MetricsRegistry):
        def to_admin_json(self) -> str:
            made.append(f"text {len(made)}")
            return made[-1]

    desk = MetricsDesk(Counted())
    assert await asyncio.gather(*(desk.text() for _ in range(20))) == ["text 0"] * 20
    assert await desk.text() == "text 1"  # never one that was made before it was asked for


async def test_metrics_that_cannot_be_put_into_words_leave_nobody_waiting() -> None:
    class Failing(MetricsRegistry):
        def to_admin_json(self) -> str:
            raise MemoryError

    desk = MetricsDesk(Failing())
    async with asyncio.timeout(30):
        for _ in range(2):
            with pytest.raises(MemoryError):
                await desk.text()


async def test_administrators_answers_leave_the_loop_to_others(tmp_path: Path) -> None:
    """A hundred questions in one packet that need no disk: the loop has a turn between two answers."""
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    async with running_node(tmp_path, assign=(0,)) as node, raw_connection(node, admin=True) as tool:
        await tool.ask(OPENING[True])
        answered_at: list[int] = []
        status = node.manager.status

        def counted() -> dict[int, bool]:
            answered_at.append(turns)
            return status()

        node.manager.status = counted  # type: ignore[method-assign]
        turn()
        asked = [ADMIN.encode(admin.AssignedPartitionStatusRequest(n), 0) for n in range(100)]
        await tool.send(*asked)
        assert [(await tool.message()).seq_num for _ in range(100)] == list(range(100))
        assert len(set(answered_at)) == 100


async def test_records_on_the_admin_port_are_those_of_the_storage_port(tmp_path: Path) -> None:
    """They are passed on as they are stored, without an object for each."""
    stored = records(0, 40)
    async with (
        running_node(tmp_path, assign=(0,)) as node,
        connected(node) as server,
        admin_connected(node) as tool,
    ):
        await server.append(1, 0, stored)
        assert list(await tool.record_list(0, 0, 100)) == stored
        assert list(await tool.record_list(0, 30, 5)) == stored[30:35]
        assert list(await tool.record_list(0, 40, 5)) == []
        async with raw_connection(node) as peer:
            await peer.ask(OPENING[False])
            asked = storage.RecordListRequest(1, 7, 0, 0, 100)
            assert list((await peer.ask(asked)).records) == stored


def test_a_large_append_is_converted_in_steps_to_the_same_records() -> None:
    """Also what is wrong with it: a checksum, an id that does not follow at the border of two steps, missing
    bytes."""
    channel: Any = None
    count = 2 * STEP_RECORDS + 100
    raw = wire_records(0, count)
    steps, costs = parse_append_in_steps(channel, append_body(count, raw), 0.0), list[int]()
    while True:
        try:
            costs.append(next(steps))
        except StopIteration as parsed:
            request = parsed.value
            break
    assert len(costs) == 2
    assert request.batch == wire_to_disk(raw, 0, count).batch
    assert request.problem is None
    gap = wire_records(0, STEP_RECORDS) + wire_records(STEP_RECORDS + 1, 10)
    refused = parse_append(channel, append_body(STEP_RECORDS + 10, gap), 0.0)
    assert refused.batch is None
    assert refused.problem == f"transaction {STEP_RECORDS + 1} where {STEP_RECORDS} was expected"
    flipped = bytearray(raw)
    flipped[-5] ^= 1
    assert "checksum" in str(parse_append(channel, append_body(count, bytes(flipped)), 0.0).problem)
    with pytest.raises(ProtocolError):
        parse_append(channel, append_body(count, raw[:-1]), 0.0)
    with pytest.raises(ProtocolError, match="left-over"):
        parse_append(channel, append_body(count - 1, raw), 0.0)


async def test_a_large_append_leaves_turns_to_others_and_keeps_its_place(tmp_path: Path) -> None:
    """20,000 records in one frame, and a request behind it: between the steps the loop has its turns, the
    order stays."""
    count = 10 * STEP_RECORDS
    async with running_node(tmp_path, assign=(0,)) as node, raw_connection(node) as server:
        await server.ask(OPENING[False])
        steps: list[int] = []
        (channel,) = node._data.channels
        work = channel.work

        def counted(units: int) -> int:
            steps.append(units)
            return work(units)

        channel.work = counted  # type: ignore[method-assign]
        asked = STORAGE.encode(storage.MaxTransactionIdRequest(1, 2, 0, False), 0)
        await server.send(frame(Magic.STORAGE, 0, bytes(append_body(count, wire_records(0, count)))), asked)
        assert await server.message() == storage.SuccessResponse(1, 1, 0)
        assert await server.message() == storage.MaxTransactionIdResponse(1, 2, 0, count - 1)
        assert len(steps) >= 2
