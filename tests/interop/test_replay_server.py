"""The recorded clients and tools of release 0.13.2 talk to our server processes; the answers are those of
0.13.2's."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.recordings import GOLDEN, RecordedFrame, frames, lines, with_versions_of_0_13_2
from tests.interop.replay import Replayer, Wire
from waltz_protocol.codec import CLIENT
from waltz_protocol.messages.client import (
    CheckStorageConnectivityResponse,
    FeedRequest,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountResponse,
    MountState,
    TransactionDataResponse,
)
from waltz_protocol.types import ReqId
from waltz_tools.local import LocalCluster, LocalSettings

HEADER_SIZE = 128
WORKLOAD, ADMIN_CLI, RAW = "client-workload", "client-admin-cli", "client-raw-all-versions"
# Connections of the raw session that 0.13.2 closed because of what it was sent.
UNKNOWN_VERSION, BAD_CHECKSUM, UNKNOWN_TYPE, TRAILING_BYTES, WRONG_FRAME_VERSION, FEED_AHEAD = range(7, 13)
UNMOUNTED_APPEND, DATA_AHEAD = 13, 14
FIRST_OWN_TYPE = 13  # types from here on are answered by the server itself, not by a partition
RECORDED_NODES = ("localhost:56285", "localhost:56295", "localhost:56305")


def decoded(raw: bytes) -> Any:
    return CLIENT.decode(raw[7:], int.from_bytes(raw[1:3], "big"))


def canonical(raw: bytes, nodes: dict[str, str]) -> object:
    """A frame as it is compared: its bytes; less where the rest of it is not determined (see the tests)."""
    if raw[:1] == b"H":
        return with_versions_of_0_13_2(raw)
    version, message = raw[1:3], decoded(raw)
    if isinstance(message, CheckStorageConnectivityResponse):
        return version, message.req_id, {nodes[name]: fine for name, fine in message.connectivity.items()}
    if isinstance(message, TransactionDataResponse) and message.data is None:
        assert message.error
        return version, message.req_id, message.transaction_id
    return raw


def by_partition(raws: Iterable[bytes], nodes: dict[str, str]) -> dict[tuple[int, int], list[object]]:
    """Frames in their order, per partition; those of the server itself per type."""
    grouped: dict[tuple[int, int], list[object]] = defaultdict(list)
    for raw in raws:
        kind = raw[7] if raw[:1] == b"L" and raw[7] >= FIRST_OWN_TYPE else -1
        partition = -1 if raw[:1] == b"H" else decoded(raw).req_id.partition_id
        grouped[partition, kind].append(canonical(raw, nodes))
    return grouped


def files_equal(cluster: LocalCluster, role: str) -> bool:
    """Whether a node's segments hold, behind their headers, exactly what a node of 0.13.2 wrote."""
    ours, golden = cluster.storage_directory(role), GOLDEN / "storage" / "node0"
    names = [str(path.relative_to(golden)) for path in golden.rglob("*") if path.suffix in (".seg", ".idx")]
    return all(
        (ours / name).read_bytes()[HEADER_SIZE:] == (golden / name).read_bytes()[HEADER_SIZE:]
        for name in names
    )


class Session:
    """Replays sessions one after another against one cluster, as they were recorded."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._port = cluster.port("server-1", "server")
        ours = [str(cluster.storage_endpoint(role)) for role in cluster.storage_roles]
        numbers = {name: str(number) for names in (RECORDED_NODES, ours) for number, name in enumerate(names)}
        self._nodes = numbers

    async def dial(self, link: str) -> Wire:
        assert link == "srv"
        return await Wire.open(self._port)

    async def play(self, session: str, *, stays_open: frozenset[int] = frozenset()) -> Replayer:
        replayer = Replayer(self.dial, without_feed_ahead, stays_open=stays_open)
        await replayer.play(lines(session))
        for conn, golden in replayer.expected.items():
            expected = by_partition([frame.raw for frame in golden], self._nodes)
            assert by_partition(replayer.received[conn], self._nodes) == expected, (
                f"{session}, connection {conn}"
            )
        return replayer

    async def high_water_mark(self, partition_id: int, *more: RecordedFrame) -> tuple[list[Any], int]:
        """A mark, asked for by a client of the recording after `more`, and what else was answered before
        it."""
        wire = await Wire.open(self._port)
        others: list[Any] = []
        async with asyncio.timeout(10):
            for frame in more or recorded(WORKLOAD, 1)[:2]:
                if frame.from_client:
                    wire.send(frame.raw)
                else:
                    await wire.frame()
            if more:
                others.append(decoded(await wire.frame() or b""))
            wire.send(CLIENT.encode(HighWaterMarkRequest(ReqId(99, 1, partition_id, 1)), 4))
            answer = decoded(await wire.frame() or b"")
        await wire.close()
        assert isinstance(answer, HighWaterMarkResponse)
        return others, answer.transaction_id


def without_feed_ahead(frame: RecordedFrame) -> bytes | None:
    """The one frame that ours answers differently on purpose is played apart."""
    ahead = frame.conn == FEED_AHEAD and frame.type == FeedRequest.TYPE
    return None if ahead else frame.raw


def recorded(session: str, conn: int) -> list[RecordedFrame]:
    return [frame for frame in frames(session) if frame.conn == conn]


@pytest.mark.timeout(100)
async def test_recorded_clients_and_tools_get_the_recorded_answers(tmp_path: Path) -> None:
    """client-workload, client-admin-cli and client-raw-all-versions, in this order, against one server and
    three nodes.

    Determined and compared byte for byte, per connection and partition in order: Hello, high-water marks,
    mounts with the feed in front of the answer, feed data, credit (a hundred transactions, then suspended,
    then the rest), lock failures, transaction data, flushes, appends of a newer and an older generation,
    mounts ahead (by version: client ahead or not ready), partitions that do not exist, assignment, health,
    preferred partitions; client ids and generations are the recorded ones (ours counts generations from 1 as
    well). Each connection gets exactly as many frames as recorded. After the workload the segments and
    indexes of every node are, behind their headers, those of 0.13.2's node 0.

    Not determined: the names of storage nodes and their order in a connectivity answer (mapped by number);
    how answers of different partitions, or of the server itself, interleave; the texts of failures. Refused
    frames (unknown version, wrong checksum, unknown type, bytes too many, another version than agreed) end
    the connection here as there. A feed request ahead of the log closes 0.13.2's connection; ours says
    "client ahead" and the connection keeps answering. An append without a mount is dropped: no answer, and
    the high-water mark has not moved.
    """
    settings = LocalSettings(tmp_path, partitions=4, storage_nodes=3, servers=1, tls=False)
    async with LocalCluster(settings) as cluster:
        session = Session(cluster)
        await session.play(WORKLOAD)
        async with asyncio.timeout(20):
            for role in cluster.storage_roles:
                while not files_equal(cluster, role):  # the third replica follows
                    await asyncio.sleep(0.02)
        await session.play(ADMIN_CLI)
        raw = await session.play(RAW, stays_open=frozenset({FEED_AHEAD}))
        assert raw.closed_by_peer == {
            *(UNKNOWN_VERSION, BAD_CHECKSUM, UNKNOWN_TYPE, TRAILING_BYTES, WRONG_FRAME_VERSION)
        }
        marks = [frame for frame in frames(RAW) if frame.name == "HIGH_WATER_MARK_RESPONSE"]
        last = decoded(marks[-1].raw).transaction_id
        assert await session.high_water_mark(0) == ([], last)
        ahead = recorded(RAW, FEED_AHEAD)
        assert ahead[-1].type == FeedRequest.TYPE
        request = decoded(ahead[-1].raw)
        answer = MountResponse(request.req_id, MountState.CLIENT_AHEAD)
        assert await session.high_water_mark(0, *ahead) == ([answer], last)
        assert not raw.received[UNMOUNTED_APPEND][1:]
        assert len(raw.received[DATA_AHEAD]) == 2
        assert not cluster.unexpected_ends()
