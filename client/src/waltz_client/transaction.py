"""Committed transactions as the application sees them.

Two shapes: `Transaction` is handed to `apply_transaction` and fetches its payload on demand;
`FeedTransaction` comes out of `client.feed` with the payload already there (or left out).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from waltz_client.committed import Committed as Committed
from waltz_client.errors import UsageError
from waltz_client.serializers import Deserializer, value_of
from waltz_protocol.types import ReqId

T = TypeVar("T")
D = TypeVar("D")

FeedFields = tuple[int, int, int, int, int, int]
"""client id, generation, partition id, seq num, transaction id, header: a FEED_DATA body as unpacked."""


@dataclass(frozen=True, slots=True)
class Transacted(Generic[D]):
    """How a `transact` ended: what the decision returned, and its place in the log (None: nothing was to be
    appended)."""

    value: D
    committed: Committed | None


class FeedTransaction:
    """One committed transaction out of a feed or a range. `data` is None when it was read without data; where
    payloads are asked for, the type is `DataTransaction`."""

    __slots__ = ("_fields", "data")

    def __init__(self, fields: FeedFields, data: bytes | None = None) -> None:
        self._fields = fields
        self.data = data

    @property
    def partition_id(self) -> int:
        """The partition it is in."""
        return self._fields[2]

    @property
    def transaction_id(self) -> int:
        """Its id: dense and increasing within the partition, from 0."""
        return self._fields[4]

    @property
    def header(self) -> int:
        """The 32-bit number the writer put beside the payload."""
        return self._fields[5]

    @property
    def req_id(self) -> ReqId:
        """The request that wrote it: whose client, in which generation."""
        return ReqId(*self._fields[:4])

    def value(self, serializer: Deserializer[T]) -> T:
        """The payload through a serializer; PayloadError when it cannot read it, UsageError without data."""
        if self.data is None:
            raise UsageError(f"transaction {self.transaction_id} was read without its payload")
        return value_of(self.data, serializer, self.partition_id, self.transaction_id)

    def __repr__(self) -> str:
        size = "without data" if self.data is None else f"{len(self.data)} bytes"
        return f"<transaction {self.transaction_id} of partition {self.partition_id}, header {self.header}, {size}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FeedTransaction):
            return NotImplemented
        return self._fields == other._fields and self.data == other.data

    def __hash__(self) -> int:
        return hash(self._fields)


if TYPE_CHECKING:

    class DataTransaction(FeedTransaction):
        """A transaction whose payload was asked for: its `data` is never None. For type checkers; when a
        program runs it is `FeedTransaction`."""

        data: bytes

else:
    DataTransaction = FeedTransaction


class Transaction:
    """One committed transaction on its way into the application; the payload is fetched when asked for."""

    __slots__ = ("_cached", "_fetch", "_fields")

    def __init__(
        self,
        fields: FeedFields,
        fetch: Callable[[int, int], Awaitable[bytes]],
    ) -> None:
        self._fields = fields
        self._fetch = fetch
        self._cached: bytes | None = None

    @property
    def partition_id(self) -> int:
        """The partition it is in."""
        return self._fields[2]

    @property
    def transaction_id(self) -> int:
        """Its id within the partition."""
        return self._fields[4]

    @property
    def header(self) -> int:
        """The 32-bit number the writer put beside the payload."""
        return self._fields[5]

    @property
    def req_id(self) -> ReqId:
        """The request that wrote it."""
        return ReqId(*self._fields[:4])

    async def raw_data(self) -> bytes:
        """The payload bytes; fetched once, retried until the server answers or the client is closed."""
        if self._cached is None:
            self._cached = await self._fetch(self.partition_id, self.transaction_id)
        return self._cached

    async def data(self, serializer: Deserializer[T]) -> T:
        """The payload through a serializer; PayloadError when it cannot read it."""
        return value_of(await self.raw_data(), serializer, self.partition_id, self.transaction_id)

    def __repr__(self) -> str:
        return f"<transaction {self.transaction_id} of partition {self.partition_id}, header {self.header}>"
