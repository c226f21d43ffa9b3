"""A storage node of release 0.13.2 as far as it was recorded: gives the recorded reply to each recorded
request."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.interop.recordings import RecordedFrame
from waltz_protocol.codec import STORAGE
from waltz_protocol.messages import storage
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import RecordHeader

QUESTIONS = (storage.LastSessionInfoRequest, storage.MaxTransactionIdRequest)


def without_seq_num(raw: bytes) -> bytes:
    """A request with the sequence number 0: how a connection counts is its own affair."""
    message: Any = STORAGE.decode(raw[7:], 0)
    return STORAGE.encode(replace(message, seq_num=0), 0)


class RecordedStorage:
    """One link. `asked` is every request that was recorded and came, numbers taken off, in order; a request
    that was recorded several times is answered in that order. Record headers are answered from the recorded
    appends and kept in `headers_asked`; a maximum that is asked once more, as ours does after it set the
    low-water mark, is answered as before and kept in `maxima_asked_again`; what ours asks with the session
    before, to see that ZooKeeper is not older than the node, is answered as it is with the next session and
    kept in `asked_before`. Any other request that 0.13.2 never sent is an AssertionError and ends the
    connection.

    `recorded` are the frames to answer from, `history` all frames of the link up to them.
    """

    def __init__(self, recorded: Iterable[RecordedFrame], history: Iterable[RecordedFrame] = ()) -> None:
        frames = [frame for frame in recorded if frame.body]
        self.hellos = {frame.from_client: frame.raw for frame in frames if frame.magic == "H"}
        replies = {(frame.conn, self._seq_num(frame)): frame for frame in frames if self._is(frame, False)}
        self.requests = [frame for frame in frames if self._is(frame, True)]
        self.asked: list[bytes] = []
        self.headers_asked: list[tuple[int, int]] = []
        self.maxima_asked_again: list[int] = []
        self.asked_before: list[Message] = []
        self._first: dict[tuple[type[Message], int], Any] = {}
        self._maxima: dict[bytes, Any] = {}
        self._headers: dict[tuple[int, int], RecordHeader] = {}
        for frame in history:
            if frame.name == "APPEND_REQUEST":
                for record in STORAGE.decode(frame.body, 0).records:  # type: ignore[attr-defined]
                    header = RecordHeader(record.transaction_id, record.req_id, record.header)
                    self._headers[record.req_id.partition_id, record.transaction_id] = header
        self._replies: dict[bytes, deque[Any]] = defaultdict(deque)
        for request in self.requests:
            reply = replies[request.conn, self._seq_num(request)]
            told = STORAGE.decode(reply.body, 0)
            self._replies[without_seq_num(request.raw)].append(told)
            asked: Any = STORAGE.decode(request.body, 0)
            self._first.setdefault((type(asked), asked.partition_id), told)

    @staticmethod
    def _is(frame: RecordedFrame, from_client: bool) -> bool:
        return frame.magic == "S" and frame.from_client is from_client

    @staticmethod
    def _seq_num(frame: RecordedFrame) -> int:
        return STORAGE.decode(frame.body, 0).seq_num  # type: ignore[attr-defined, no-any-return]

    def answer(self, raw: bytes) -> list[bytes]:
        if raw[:1] == b"H":
            assert raw == self.hellos[True]
            return [self.hellos[False]]
        message: Any = STORAGE.decode(raw[7:], 0)
        if isinstance(message, storage.RecordHeaderRequest):
            place = (message.partition_id, message.transaction_id)
            self.headers_asked.append(place)
            ids = (message.session_id, message.seq_num, message.partition_id)
            return [STORAGE.encode(storage.RecordHeaderResponse(*ids, self._headers.get(place)), 0)]
        key = without_seq_num(raw)
        known = self._replies.get(key)
        if not known and key in self._maxima:
            self.maxima_asked_again.append(message.partition_id)
            return [STORAGE.encode(replace(self._maxima[key], seq_num=message.seq_num), 0)]
        first = self._first.get((type(message), message.partition_id))
        if (
            not known
            and isinstance(message, QUESTIONS)
            and first
            and message.session_id == first.session_id - 1
        ):
            self.asked_before.append(message)
            return [STORAGE.encode(replace(first, session_id=message.session_id, seq_num=message.seq_num), 0)]
        assert known, f"release 0.13.2 never sent {message}"
        self.asked.append(key)
        reply = known.popleft()
        if isinstance(message, storage.MaxTransactionIdRequest):
            self._maxima[key] = reply
        return [STORAGE.encode(replace(reply, seq_num=message.seq_num), 0)]

    def left(self) -> list[Message]:
        """Recorded requests that never came."""
        return [STORAGE.decode(key[7:], 0) for key, replies in self._replies.items() if replies]

    def of_partition(self, keys: Iterable[bytes], partition_id: int) -> list[bytes]:
        """Those of one partition, in their order."""
        return [key for key in keys if STORAGE.decode(key[7:], 0).partition_id == partition_id]  # type: ignore[attr-defined]
