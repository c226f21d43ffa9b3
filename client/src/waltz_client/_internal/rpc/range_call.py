"""One call for the payloads of many transactions of a partition: a piece of a range that is read in bulk.

The wire asks for one transaction at a time. What a call of its own for each would cost the reader (objects,
timers, wake-ups) is paid once per piece here; requests go out as one write. Retries, moves and lost
connections are the RPC client's business, as for every call: whatever is sent again asks only for what is
still missing.
"""

from __future__ import annotations

from collections.abc import Callable

from waltz_client._internal.req_ids import ReqIdSource
from waltz_client._internal.rpc.call import AnswerSession, Calls, PartitionCall
from waltz_client.errors import WaltzClientError
from waltz_client.transaction import FeedFields
from waltz_protocol.frames.data import DataResponse, pack_data_request


class RangeCall(PartitionCall):
    """Payloads and checksums of `fields`, in their order.

    Invariants: `missing` counts the Nones in `parts`; a slot is filled once; `_slots` holds exactly the
    requests that this call has registered with its session. `on_result(None, error)` is called once: when
    nothing is missing (no error), or when the client closes.
    """

    __slots__ = ("_error", "_missing_then", "_slots", "checksums", "fields", "missing", "parts", "size_bytes")

    def __init__(
        self,
        calls: Calls,
        partition_id: int,
        fields: list[FeedFields],
        on_result: Callable[[bytes | int | None, WaltzClientError | None], None],
    ) -> None:
        super().__init__(calls, partition_id, fields[0][4], None, on_result)
        self.fields = fields
        self.parts: list[bytes | None] = [None] * len(fields)
        self.checksums = [0] * len(fields)
        self.missing = len(fields)
        self.size_bytes = 0
        self._slots: dict[int, int] = {}
        self._missing_then = self.missing
        self._error: str | None = None

    def request(self, session: AnswerSession, req_ids: ReqIdSource) -> bytes:
        """One request for each payload that is missing, back to back."""
        version, client_id, generation = session.version, req_ids.client_id, req_ids.generation
        partition_id, calls, slots = self.partition_id, session.calls, self._slots
        frames = []
        for slot, part in enumerate(self.parts):
            if part is None:
                seq_num = req_ids.next_seq_num()
                slots[seq_num] = slot
                calls[partition_id, seq_num] = self
                frames.append(
                    pack_data_request(
                        version, client_id, generation, partition_id, seq_num, self.fields[slot][4]
                    )
                )
        self._missing_then = self.missing
        self._error = None
        return b"".join(frames)

    def withdraw(self, session: AnswerSession) -> None:
        """No answer of this session counts any longer."""
        for seq_num in self._slots:
            session.calls.pop((self.partition_id, seq_num), None)
        self._slots.clear()

    def lost(self) -> None:
        """The session ended."""
        self._slots.clear()

    def data_answered(self, response: DataResponse) -> bool:
        """One answer. What could not be read is asked for again once everything else has been answered."""
        slot = self._slots[response.seq_num]
        if self.fields[slot][4] != response.transaction_id:
            return False
        del self._slots[response.seq_num]
        if response.data is None:
            self._error = response.error or "no data"
        else:
            self.parts[slot] = response.data
            self.checksums[slot] = response.checksum
            self.size_bytes += len(response.data)
            self.missing -= 1
        if not self._slots:
            self.session = None
            if not self.missing:
                self.finish(None, None)
            else:
                self._calls.retry_later(self, self._error or "an answer is missing")
        return True

    def is_silent(self) -> bool:
        """Whether no answer came since this was asked last."""
        before, self._missing_then = self._missing_then, self.missing
        return before == self.missing
