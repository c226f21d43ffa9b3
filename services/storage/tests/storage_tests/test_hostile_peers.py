"""Peers that ask without reading the answers, or send without having opened the connection: memory stays
bounded."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from waltz_protocol.codec import ADMIN, STORAGE
from waltz_protocol.messages import admin, storage
from waltz_storage.service.jobs import ReadLimits

from .node_support import connected, raw_connection, records, running_node
from .support import KEY, wire_records

OPEN = storage.OpenRequest(-1, -1, -1, KEY, 4)
ADMIN_OPEN = admin.OpenRequest(-1, KEY, 4)
RECORD_BYTES = 100_000
ASKED = 100


async def _settled(pending: Callable[[], int]) -> int:
    """The number of unsent bytes once it does not grow any more."""
    seen = -1
    while seen != (seen := pending()):
        await asyncio.sleep(0.5)
    return seen


async def test_storage_7_13_replies_nobody_reads_are_bounded(tmp_path: Path) -> None:
    """Thousands of reads of some MB each fit into one packet; a peer that takes no answer must not cost
    gigabytes."""
    limits = ReadLimits(max_list_bytes=2 << 20, max_reply_bytes=4 << 20, max_unsent_bytes=32 << 20)
    async with running_node(tmp_path, assign=(0,), read_limits=limits) as node:
        async with connected(node) as server:
            await server.append(1, 0, records(0, 30, RECORD_BYTES))
        async with raw_connection(node) as peer:
            await peer.ask(OPEN)
            channel = next(iter(node._data.channels))
            asked = [STORAGE.encode(storage.RecordListRequest(1, n, 0, 0, 1000), 0) for n in range(ASKED)]
            await peer.send(*asked)
            assert await _settled(lambda: channel.pending_bytes) < 64 << 20
            assert [(await peer.message()).seq_num for _ in range(ASKED)] == list(range(ASKED))


async def test_storage_7_13_admin_replies_nobody_reads_are_bounded(tmp_path: Path) -> None:
    async with running_node(tmp_path, assign=(0,)) as node:
        async with connected(node) as server:
            await server.append(1, 0, records(0, 30, RECORD_BYTES))
        async with raw_connection(node, admin=True) as peer:
            await peer.ask(ADMIN_OPEN)
            channel = next(iter(node._admin.channels))
            asked = [ADMIN.encode(admin.RecordListRequest(n, 0, 0, 20), 0) for n in range(ASKED)]
            await peer.send(*asked)
            assert await _settled(lambda: channel.pending_bytes) < 32 << 20
            assert [(await peer.message()).seq_num for _ in range(ASKED)] == list(range(ASKED))


async def test_storage_7_11_records_of_a_stranger_are_not_even_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Converting the records of a 64 MB frame takes seconds of the loop: only for peers that have opened."""
    converted: list[object] = []
    monkeypatch.setattr("waltz_storage.service.requests.wire_to_disk", lambda *a: converted.append(a))
    async with running_node(tmp_path, assign=(0,)) as node, raw_connection(node) as peer:
        body = struct.pack(">bqqii", 6, 1, 7, 0, 1) + wire_records(0, 1) + b"\0"
        await peer.send(struct.pack(">bhi", 0x53, 0, len(body)) + body)
        answer = await peer.message()
        assert isinstance(answer, storage.FailureResponse)
        assert "send Open first" in (answer.error.message or "")
        assert answer.seq_num == 7
    assert not converted
