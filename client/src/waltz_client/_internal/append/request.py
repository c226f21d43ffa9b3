"""The request of an append: one value from the call to the frame.

Made once by the call, checked, with the locks hashed; what comes after it passes it on whole:
`appender`, `stream.partition`, `window`, `waltz_protocol.frames.append.encode_append`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from waltz_client._internal.append.lock_names import hash_of
from waltz_client._internal.append.sequences import check_sequence
from waltz_client._internal.arguments import LAST_ID, partition_number, whole_number
from waltz_client.errors import TransactionTooLargeError, UsageError
from waltz_client.settings import ClientSettings
from waltz_protocol.frames.append import encode_append
from waltz_protocol.locks import LockId

LockHashes = Sequence[int]

_make = tuple.__new__  # half the cost of calling the class


class AppendRequest(NamedTuple):
    """What is to be appended, and where. Invariant: checked against the client's limits."""

    partition_id: int
    data: bytes
    header: int
    write_locks: LockHashes
    read_locks: LockHashes
    append_locks: LockHashes
    as_of: int | None
    """The view that locks are checked against; None: the application's when the append is sent."""
    sequence: int | None = None
    """Of a named producer's append."""

    def frame(self, req_id: bytes, view: int, version: int) -> bytes:
        """The frame that a server gets; EncodeError when `version` cannot carry the locks."""
        return encode_append(
            req_id,
            view,
            self.write_locks,
            self.read_locks,
            self.append_locks,
            self.header,
            self.data,
            version,
        )


def append_request(
    settings: ClientSettings,
    partition_id: int,
    data: bytes | bytearray | memoryview,
    header: int,
    write_locks: Iterable[LockId],
    read_locks: Iterable[LockId],
    append_locks: Iterable[LockId],
    as_of: int | None,
    sequence: int | None = None,
) -> AppendRequest:
    """The request with these facts: UsageError, TransactionTooLargeError."""
    if type(partition_id) is not int:
        partition_id = partition_number(partition_id)
    if not isinstance(data, bytes):
        if not isinstance(data, (bytearray, memoryview)):
            raise UsageError(f"data must be bytes, not {type(data).__name__}")
        data = bytes(data)
    if len(data) > settings.max_transaction_bytes:
        raise TransactionTooLargeError(
            f"transaction of {len(data)} bytes is larger than client.maxTransactionBytes "
            f"({settings.max_transaction_bytes})",
            partition_id=partition_id,
        )
    if type(header) is not int:
        header = whole_number("header", header)
    if not -(2**31) <= header < 2**31:
        raise UsageError(f"header {header} is not a signed 32-bit number")
    if as_of is not None:
        as_of = whole_number("as_of", as_of)
        if not -1 <= as_of <= LAST_ID:
            raise UsageError(f"as_of {as_of} is not a transaction id or -1")
    if sequence is not None:
        sequence = check_sequence(sequence)
    if not write_locks and not read_locks and not append_locks:
        return _make(AppendRequest, (partition_id, data, header, (), (), (), as_of, sequence))
    write, read, append = lock_hashes(write_locks), lock_hashes(read_locks), lock_hashes(append_locks)
    count = len(write) + len(read) + len(append)
    if count > settings.max_locks:
        raise TransactionTooLargeError(
            f"transaction with {count} locks: more than client.maxLocksPerAppend ({settings.max_locks})",
            partition_id=partition_id,
        )
    return _make(AppendRequest, (partition_id, data, header, write, read, append, as_of, sequence))


def lock_hashes(locks: Iterable[LockId]) -> LockHashes:
    """Wire hashes of locks, in order, duplicates kept. UsageError for anything that is not a lock."""
    try:
        return tuple(hash_of(lock) for lock in locks)
    except (AttributeError, TypeError):
        raise UsageError("locks must be LockId(name, id) values") from None
