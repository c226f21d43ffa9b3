"""What a stranger may send and is told, how much an Append may hold, and what a process without resources
says."""

from __future__ import annotations

import errno
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from waltz_protocol.aio.channel import Channel
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frame import Magic, frame
from waltz_protocol.messages import admin, storage
from waltz_storage.engine.errors import OutOfResourcesError, RecordDamagedError
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.data_handler import STRANGER_FRAME_BYTES
from waltz_storage.service.requests import MAX_APPEND_RECORDS, parse_append

from .node_support import raw_connection, running_node
from .support import KEY, OTHER_KEY, append, empty_disk, open_manager, wire_record, wire_records

MIB = 1 << 20
OPENING: dict[bool, tuple[Any, Any]] = {
    False: (storage.OpenRequest(-1, -1, -1, KEY, 4), storage.OpenRequest(-1, -1, -1, OTHER_KEY, 4)),
    True: (admin.OpenRequest(-1, KEY, 4), admin.OpenRequest(-1, OTHER_KEY, 4)),
}


def append_body(count: int, raw: bytes) -> memoryview:
    return memoryview(struct.pack(">bqqii", storage.AppendRequest.TYPE, 1, 1, 0, count) + raw + b"\0")


@pytest.mark.parametrize("on_admin", [False, True])
async def test_storage_7_13_a_stranger_sends_small_frames_only(
    tmp_path: Path, on_admin: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Before a successful Open, and again after a refused one; the frame is refused by its header, not
    received."""
    magic = Magic.ADMIN if on_admin else Magic.STORAGE
    large = frame(magic, 0, bytes(STRANGER_FRAME_BYTES + 1))[:7]
    good, wrong = OPENING[on_admin]
    async with running_node(tmp_path, assign=(0,)) as node:
        async with raw_connection(node, admin=on_admin) as stranger:
            await stranger.send(large)
            assert await stranger.is_closed()
        async with raw_connection(node, admin=on_admin) as stranger:
            await stranger.ask(good)
            await stranger.ask(wrong)
            await stranger.send(large)
            assert await stranger.is_closed()
        async with raw_connection(node, admin=on_admin) as peer:
            await peer.ask(good)
            await peer.send(large)
            await peer.send(bytes(STRANGER_FRAME_BYTES + 1))
            assert await peer.is_closed()  # it was received, and is no message
    assert sum("exceeds the limit of 65536" in text for text in caplog.messages) == 2


@pytest.mark.parametrize("on_admin", [False, True])
async def test_safety_b1_a_stranger_is_not_told_the_cluster_key_and_is_named_in_the_log(
    tmp_path: Path, on_admin: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever knows the key can open the connection, and then raise the fence."""
    _, wrong = OPENING[on_admin]
    request: Any = admin.MetricsRequest(1) if on_admin else storage.LastSessionInfoRequest(9, 1, 0, False)
    async with running_node(tmp_path, assign=(0,)) as node, raw_connection(node, admin=on_admin) as stranger:
        answer = await stranger.ask(wrong)
        assert "is not that of this node" in str(answer.error.message)
        assert str(KEY) not in str(answer)
        for _ in range(3):
            await stranger.ask(request)
    assert sum("Open refused" in text for text in caplog.messages) == 1
    assert sum("it has not opened the connection" in text for text in caplog.messages) == 1
    assert all(text.startswith("127.0.0.1:") for text in caplog.messages if "refused" in text)


def test_storage_7_13_an_append_of_too_many_records_is_refused_before_it_is_converted() -> None:
    """A frame of tiny records costs several times its size when it is converted."""
    channel: Any = Channel
    body = append_body(MAX_APPEND_RECORDS + 1, bytes(36) * (MAX_APPEND_RECORDS + 1))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="65537 records, more than 65536"):
            parse_append(channel, body, 0.0)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    parsed = parse_append(channel, append_body(1000, wire_records(0, 1000)), 0.0)
    assert parsed.batch is not None
    assert parsed.batch.record_count == 1000


def test_a_large_append_is_copied_once() -> None:
    channel: Any = Channel
    body = append_body(4, b"".join(wire_record(txid, bytes(4 * MIB)) for txid in range(4)))
    tracemalloc.start()
    try:
        parsed = parse_append(channel, body, 0.0)
        assert tracemalloc.get_traced_memory()[1] < 17 * MIB
    finally:
        tracemalloc.stop()
    assert parsed.batch is not None
    assert parsed.batch == parse_append(channel, memoryview(bytes(body)), 0.0).batch


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_safety_c2_no_file_descriptors_is_not_damage(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """An older segment cannot be opened now: the read fails, nothing is reported as damaged, and later it
    works."""
    disk = empty_disk()
    manager = open_manager(disk, threshold=300, cache=0)
    partition = manager.assign(0)
    append(partition, 0, 50)
    real = disk.open

    def out_of_files(path: str, **options: bool) -> object:
        raise OSError(code, "no more")

    monkeypatch.setattr(disk, "open", out_of_files)
    with pytest.raises(OutOfResourcesError, match="partition 0 cannot be read now"):
        partition.read(0, 10, MIB)
    assert manager.problems() == {}
    monkeypatch.setattr(disk, "open", real)
    assert len(partition.read(0, 10, MIB)) == 10

    def broken(path: str, **options: bool) -> object:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(disk, "open", broken)
    with pytest.raises(RecordDamagedError):
        partition.read(0, 10, MIB)
    assert "1 reads met a damaged record" in manager.problems()[0]
    monkeypatch.setattr(disk, "open", real)
    manager.close()


def test_the_status_is_asked_for_while_a_partition_closes() -> None:
    """The admin port asks on the loop; a disk thread may take the partition away between two looks."""

    class Vanishing(dict[int, Any]):
        def __contains__(self, key: object) -> bool:
            there = super().__contains__(key)
            self.pop(key, None)  # type: ignore[call-overload]
            return there

    manager: StorageManager = open_manager(empty_disk())
    partition = manager.assign(0)
    manager.partitions = Vanishing(manager.partitions)
    assert manager.status() in ({0: True}, {0: False}, {})
    manager.partitions = {0: partition}
    manager.close()
