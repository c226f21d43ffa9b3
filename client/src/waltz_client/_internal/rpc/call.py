"""One request to the server of a partition, from its start to its one result.

The RPC client decides when and where it is sent; the session passes the answers on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from waltz_client._internal.req_ids import ReqIdSource
from waltz_client.errors import WaltzClientError
from waltz_protocol.codec import CLIENT
from waltz_protocol.frames.data import DataResponse, pack_data_request
from waltz_protocol.messages.client import HighWaterMarkRequest
from waltz_protocol.types import ReqId

log = logging.getLogger(__name__)


class Calls(Protocol):
    """What a call needs of its owner, the RPC client."""

    def retry_later(self, call: PartitionCall, reason: str) -> None:
        """The server could not answer: send it again after a delay."""
        ...

    def forget(self, call: PartitionCall) -> None:
        """The call is done."""
        ...


class AnswerSession(Protocol):
    """What a call needs of the connection that it is sent on."""

    version: int
    takes_zstd: bool
    """Blocks may come compressed: the client wants it, and the server can."""
    calls: dict[tuple[int, int], PartitionCall]
    """The calls that wait for an answer, by partition and sequence number."""

    def send_frame(self, frame: bytes) -> bool:
        """Queue a whole frame; False when the connection is gone."""
        ...


class PartitionCall:
    """One data request (`transaction_id` set) or high-water mark request of one partition.

    Ends exactly once through `on_result(value, error)`. `resend_at` bounds the silence of one sending:
    some refusals are silent (a server that does not own the partition never answers a high-water mark
    request).
    """

    __slots__ = (
        "_calls", "attempts", "deadline", "done", "on_result", "partition_id", "resend_at", "seq_num", "session",
        "transaction_id",
    )  # fmt: skip

    def __init__(
        self,
        calls: Calls,
        partition_id: int,
        transaction_id: int | None,
        deadline: float | None,
        on_result: Callable[[bytes | int | None, WaltzClientError | None], None],
    ) -> None:
        self._calls = calls
        self.partition_id = partition_id
        self.transaction_id = transaction_id
        self.deadline = deadline
        self.on_result = on_result
        self.attempts = 0
        self.resend_at = 0.0
        self.session: AnswerSession | None = None
        self.seq_num = 0
        self.done = False

    def answered(self, value: bytes | int | None, error: str | None) -> None:
        """The server answered (with a text when it could not read)."""
        self.session = None
        if self.done:
            return
        if value is None or (self.transaction_id is None and isinstance(value, int) and value < -1):
            self._calls.retry_later(self, error or "the partition is recovering")
            return
        self.finish(value, None)

    def finish(self, value: bytes | int | None, error: WaltzClientError | None) -> None:
        """End the call."""
        if self.done:
            return
        self.done = True
        self._calls.forget(self)
        try:
            self.on_result(value, error)
        except Exception:
            log.exception(
                "partition %d: the receiver of an answer raised",
                self.partition_id,
                extra={"partition": self.partition_id},
            )

    # -- what a call for many transactions does otherwise (`range_call`, `block_feed`) ---------------------

    def takes(self, version: int) -> bool:
        """Whether it can be sent with this version of the protocol; if not, it has ended."""
        return True

    def request(self, session: AnswerSession, req_ids: ReqIdSource) -> bytes:
        """Register for the answer with a fresh request id; the frame to send."""
        seq_num = self.seq_num = req_ids.next_seq_num()
        session.calls[self.partition_id, seq_num] = self
        if self.transaction_id is None:
            req_id = ReqId(req_ids.client_id, req_ids.generation, self.partition_id, seq_num)
            return CLIENT.encode(HighWaterMarkRequest(req_id), session.version)
        return pack_data_request(
            session.version,
            req_ids.client_id,
            req_ids.generation,
            self.partition_id,
            seq_num,
            self.transaction_id,
        )

    def withdraw(self, session: AnswerSession) -> None:
        """No answer of this session counts any longer."""
        session.calls.pop((self.partition_id, self.seq_num), None)

    def lost(self) -> None:
        """The session ended; nothing of this call is registered with it any longer."""

    def data_answered(self, response: DataResponse) -> bool:
        """Take the answer to a data request; False when it is not the one asked for."""
        if self.transaction_id != response.transaction_id:
            return False
        self.answered(response.data, response.error)
        return True

    def is_silent(self) -> bool:
        """Whether nothing was answered since this was asked last."""
        return True
