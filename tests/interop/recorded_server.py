"""A server of release 0.13.2 as far as it was recorded: every frame it answers with is one of the
recording."""

from collections import defaultdict
from collections.abc import Iterable

from tests.interop.recordings import RecordedFrame, with_versions_of_0_13_2
from waltz_protocol.messages.client import (
    AppendRequest,
    FeedData,
    FeedRequest,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountRequest,
    MountResponse,
    MountState,
    TransactionDataRequest,
    TransactionDataResponse,
)

_TYPE = 7
_CLIENT_ID = slice(8, 12)
_REQ_ID = slice(8, 24)
_PARTITION = slice(16, 20)
_SEQ_NUM = slice(20, 24)
_MARK = slice(24, 32)
_STATE = slice(24, 28)


def kind_of(raw: bytes) -> int:
    return raw[_TYPE]


def partition_of(raw: bytes) -> int:
    return int.from_bytes(raw[_PARTITION], "big")


def client_of(raw: bytes) -> int:
    return int.from_bytes(raw[_CLIENT_ID], "big")


def mark_of(raw: bytes) -> int:
    """The i64 behind the request id: a client's mark, or the transaction it asks for."""
    return int.from_bytes(raw[_MARK], "big", signed=True)


def without_seq_num(raw: bytes) -> bytes:
    """A frame with the sequence number 0, and a mount with the connection number 0: how a client counts is
    its own affair."""
    raw = raw[: _SEQ_NUM.start] + bytes(4) + raw[_SEQ_NUM.stop :]
    return raw if kind_of(raw) != MountRequest.TYPE else raw[: _MARK.stop] + bytes(8)


def without_mark(raw: bytes) -> bytes:
    """A mount without the place it starts at, which is a client's choice as well."""
    raw = without_seq_num(raw)
    return raw[: _MARK.start] + bytes(8) + raw[_MARK.stop :]


def _for_request(answer: bytes, raw: bytes) -> bytes:
    """A recorded answer with the id of the request it answers now."""
    return answer[: _REQ_ID.start] + raw[_REQ_ID] + answer[_REQ_ID.stop :]


class RecordedServer:
    """All clients of one recorded session. `asked` is every frame that came in but Hellos, in order.

    The log grows by the appends of the recording, per partition in their order and byte for byte (but for the
    sequence number); another one is an AssertionError and ends the connection. Everything else is answered
    from the log as it is, with recorded frames: marks, data, mounts (the feed data above the client's mark,
    then the state), feed requests (feed data; no credit is ever used up by so few).
    """

    def __init__(self, recorded: Iterable[RecordedFrame]) -> None:
        frames = [frame for frame in recorded if frame.body]
        self.requests = [frame.raw for frame in frames if frame.from_client and frame.magic == "L"]
        self.asked: list[bytes] = []
        self.lengths: dict[int, int] = defaultdict(int)
        self._hellos = {frame.from_client: frame.raw for frame in frames if frame.magic == "H"}
        self._appends: dict[int, list[bytes]] = defaultdict(list)
        self._feed: dict[int, dict[int, bytes]] = defaultdict(dict)
        self._marks: dict[tuple[int, int], bytes] = {}
        self._data: dict[tuple[int, int], bytes] = {}
        self._mounted: dict[tuple[int, int], bytes] = {}
        for frame in frames:
            partition, raw = partition_of(frame.raw), frame.raw
            match frame.type:
                case AppendRequest.TYPE:
                    self._appends[partition].append(without_seq_num(raw))
                case FeedData.TYPE:
                    self._feed[partition].setdefault(mark_of(raw), raw)
                case HighWaterMarkResponse.TYPE:
                    self._marks[partition, mark_of(raw)] = raw
                case TransactionDataResponse.TYPE:
                    self._data[partition, mark_of(raw)] = raw
                case MountResponse.TYPE:
                    self._mounted[partition, int.from_bytes(raw[_STATE], "big")] = raw

    def answer(self, raw: bytes) -> list[bytes]:
        if raw[:1] == b"H":
            raw = with_versions_of_0_13_2(raw)
            assert raw[:-12] == self._hellos[True][:-12], "the same versions, whatever the greeting"
            return [self._hellos[False]]
        self.asked.append(raw)
        partition = partition_of(raw)
        last = self.lengths[partition] - 1
        match kind_of(raw):
            case HighWaterMarkRequest.TYPE:
                return [_for_request(self._marks[partition, last], raw)]
            case TransactionDataRequest.TYPE:
                return [_for_request(self._data[partition, mark_of(raw)], raw)]
            case FeedRequest.TYPE:
                assert mark_of(raw) <= last, "a feed request ahead of the log: 0.13.2 closes the connection"
                return self._fed(partition, mark_of(raw))
            case MountRequest.TYPE if mark_of(raw) > last:
                return [_for_request(self._mounted[partition, MountState.CLIENT_AHEAD], raw)]
            case MountRequest.TYPE:
                mounted = _for_request(self._mounted[partition, MountState.READY], raw)
                return [*self._fed(partition, mark_of(raw)), mounted]
            case AppendRequest.TYPE:
                assert without_seq_num(raw) == self._appends[partition][last + 1], raw.hex()
                self.lengths[partition] += 1
                return [_for_request(self._feed[partition][last + 1], raw)]
        raise AssertionError(f"no client of the recording ever sent {raw.hex()}")

    def _fed(self, partition: int, after: int) -> list[bytes]:
        return [self._feed[partition][txid] for txid in range(after + 1, self.lengths[partition])]
