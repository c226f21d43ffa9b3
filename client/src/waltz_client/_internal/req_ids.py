"""Request ids of one partition of one client object. Pure.

Invariant (safety: a request id is never used twice): one counter per partition, shared by the stream and the RPC side,
kept for the whole life of the client id, across reconnects, moves and deactivations. A client object gets a fresh client
id, so a restart cannot reuse one either. The generation only ever grows.
"""

from __future__ import annotations

from waltz_client._internal.wire import pack_req_id
from waltz_protocol.types import ReqId

_LAST_I32 = 2**31 - 1


class ReqIdSource:
    """Counter and generation of one partition."""

    __slots__ = ("_seq_num", "client_id", "generation", "partition_id")

    def __init__(self, client_id: int, partition_id: int) -> None:
        self.client_id = client_id
        self.partition_id = partition_id
        self.generation = -1
        self._seq_num = 0

    def raise_generation(self, generation: int) -> bool:
        """Adopt a larger generation; False (unchanged) for the same or a smaller one."""
        if generation <= self.generation:
            return False
        self.generation = generation
        return True

    def next_seq_num(self) -> int:
        """A number never given before; wraps as a signed 32-bit integer."""
        seq_num = self._seq_num + 1 if self._seq_num != _LAST_I32 else -(2**31)
        self._seq_num = seq_num
        return seq_num

    def next_req_id(self) -> ReqId:
        """A fresh request id in the current generation."""
        return ReqId(self.client_id, self.generation, self.partition_id, self.next_seq_num())

    def pack(self, generation: int, seq_num: int) -> bytes:
        """The 16 bytes of one of this partition's request ids."""
        return pack_req_id(self.client_id, generation, self.partition_id, seq_num)
