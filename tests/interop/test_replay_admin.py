"""Our tools' connection to a storage admin port speaks to the recorded one of release 0.13.2."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.interop.recordings import RecordedFrame, frames
from tests.interop.replay import listening
from tests.interop.test_replay_storage import PARAMS
from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.codec import ADMIN
from waltz_protocol.types import Endpoint, SessionInfo


def without_seq_num(raw: bytes) -> bytes:
    message: Any = ADMIN.decode(raw[7:], 0)
    return ADMIN.encode(replace(message, seq_num=0), 0)


class RecordedAdminPort:
    """Gives the recorded reply to each recorded request, in the order of the recording where one came several
    times."""

    def __init__(self, recorded: Iterable[RecordedFrame]) -> None:
        listed = [frame for frame in recorded if frame.body]
        self.asked: set[bytes] = set()
        self.requests = {without_seq_num(f.raw) for f in listed if f.from_client and f.magic == "A"}
        self._hellos = {frame.from_client: frame.raw for frame in listed if frame.magic == "H"}
        self._replies: dict[bytes, deque[bytes]] = defaultdict(deque)
        replies = {(f.conn, self._seq_num(f)): f.raw for f in listed if f.magic == "A" and not f.from_client}
        for frame in listed:
            if frame.magic == "A" and frame.from_client:
                self._replies[without_seq_num(frame.raw)].append(replies[frame.conn, self._seq_num(frame)])

    @staticmethod
    def _seq_num(frame: RecordedFrame) -> int:
        return ADMIN.decode(frame.body, 0).seq_num  # type: ignore[attr-defined, no-any-return]

    def answer(self, raw: bytes) -> list[bytes]:
        if raw[:1] == b"H":
            assert raw == self._hellos[True]
            return [self._hellos[False]]
        key = without_seq_num(raw)
        known = self._replies.get(key)
        assert known, f"no tool of 0.13.2 ever sent {raw.hex()}"
        self.asked.add(key)
        message: Any = ADMIN.decode(raw[7:], 0)
        reply: Any = ADMIN.decode(known.popleft()[7:], 0)
        return [ADMIN.encode(replace(reply, seq_num=message.seq_num), 0)]


async def test_our_tools_speak_to_recorded_admin_ports() -> None:
    """Everything the tools of 0.13.2 asked the three nodes for, asked by ours, on one connection.

    Determined: the Hello and every request, byte for byte but for the sequence number; what the replies say,
    the metrics of 0.13.2 included. Not determined: how requests are spread over connections, and sequence
    numbers.
    """
    port_of = RecordedAdminPort(frame for frame in frames("server-storage") if frame.link.startswith("a"))
    async with listening(lambda: port_of.answer) as port:
        connection = await StorageAdminConnection.open(
            Endpoint("127.0.0.1", port),
            cluster_key=PARAMS.cluster_key,
            num_partitions=PARAMS.num_partitions,
            tls=None,
        )
        metrics = await connection.metrics()
        assert metrics["gauges"]["waltz-storage.waltz-storage-partition-ids"]["value"] == [0, 1, 2, 3]
        assert metrics["gauges"]["waltz-storage.partition-0.session-id"]["value"] == 0
        assert await connection.last_session_info(1) == SessionInfo(0, -1, -1)
        assert await connection.partition_status() == dict.fromkeys(range(4), True)
        await connection.set_available([3], False)
        await connection.set_available([3], True)
        await connection.assign([3], False)
        await connection.assign([3], True)
        await connection.assign([], False)
        await connection.assign([], True)
        connection.close()
        await connection.wait_closed()
    assert port_of.asked == port_of.requests
