"""TransactionContext and TransactionBuilder: a transaction as code that can be run again (application
contract)."""

from __future__ import annotations

import abc
import time
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from waltz_client._internal.arguments import time_limit
from waltz_client.errors import UsageError
from waltz_client.serializers import Serializer, payload_of
from waltz_protocol.locks import LockId

T = TypeVar("T")

PartitionLocalLock = LockId
"""A lock: a name and a number, meaningful within one partition only. The reference's name for
`LockId`."""


class TransactionBuilder:
    """Filled by `TransactionContext.execute`, once per run of it."""

    def __init__(self, client_high_water_mark: int = -1) -> None:
        self.client_high_water_mark = client_high_water_mark
        """The mark the application had applied when this attempt began: what locks are checked against."""
        self.header = 0
        self.data: bytes | None = None
        self.write_locks: tuple[LockId, ...] = ()
        self.read_locks: tuple[LockId, ...] = ()
        self.append_locks: tuple[LockId, ...] = ()

    def set_header(self, header: int) -> TransactionBuilder:
        """The signed 32-bit number streamed beside the payload (default 0)."""
        self.header = header
        return self

    def set_transaction_data(self, value: T, serializer: Serializer[T]) -> TransactionBuilder:
        """The payload; mandatory (an empty payload is allowed, a missing one is a UsageError). PayloadError
        when the serializer cannot write the value."""
        self.data = payload_of(value, serializer)
        return self

    def set_write_locks(self, locks: Iterable[LockId]) -> TransactionBuilder:
        """Locks checked against the view and bumped by the commit."""
        self.write_locks = tuple(locks)
        return self

    def set_read_locks(self, locks: Iterable[LockId]) -> TransactionBuilder:
        """Locks checked against the view only."""
        self.read_locks = tuple(locks)
        return self

    def set_append_locks(self, locks: Iterable[LockId]) -> TransactionBuilder:
        """Locks bumped by the commit, never checked."""
        self.append_locks = tuple(locks)
        return self

    def payload(self) -> bytes:
        """The payload as set; UsageError when `execute` returned true without setting it."""
        if self.data is None:
            raise UsageError("execute() returned true without set_transaction_data()")
        return self.data


class TransactionContext(abc.ABC):
    """One logical transaction. Every method may be a plain method or a coroutine function.

    `execute` runs once per attempt. A run that finds another transaction of this client on its way under one
    of its locks is no attempt: it runs again when that has an outcome. Then exactly one of:
    `on_completion(True)` (committed; before the local apply) followed by `on_application()` (after it);
    `on_completion(False)` (execute declined); `on_expiration()`; `on_exception(error)`. An exception out of a
    callback is logged and changes nothing else.
    """

    def __init__(self, *, expires_after_seconds: float | None = None) -> None:
        self._created_at = time.time()
        if expires_after_seconds is not None:
            expires_after_seconds = time_limit("expires_after_seconds", expires_after_seconds)
        self.expires_after_seconds = expires_after_seconds
        """Seconds after `creation_time` when it is not tried again, infinity: never; None =
        `client.transactionExpirationMs`. UsageError for what is no number of seconds."""

    @property
    def creation_time(self) -> int:
        """Milliseconds since the epoch when this object was made."""
        return int(self._creation_seconds() * 1000)

    def _creation_seconds(self) -> float:
        # A subclass that forgets super().__init__() still gets a creation time: that of its first use.
        if "_created_at" not in self.__dict__:
            self._created_at = time.time()
        return self._created_at

    def is_expired(self, now_seconds: float, default_seconds: float | None) -> bool:
        """Whether no further attempt may start at this wall-clock time (seconds since the epoch)."""
        limit = self.__dict__.get("expires_after_seconds")
        if limit is None:
            limit = default_seconds
        return limit is not None and now_seconds >= self._creation_seconds() + limit

    @abc.abstractmethod
    def partition_id(self, num_partitions: int) -> int:
        """The partition of this transaction; asked again before each attempt."""

    @abc.abstractmethod
    def execute(self, builder: TransactionBuilder) -> bool | Awaitable[bool]:
        """Build the transaction from the application's current state; False to give it up."""

    def on_lock_failure(self) -> Awaitable[None] | None:  # noqa: B027 -- optional by contract
        """A lock was touched by another transaction; informational, another attempt follows."""

    def on_completion(self, committed: bool) -> Awaitable[None] | None:  # noqa: B027 -- optional by contract
        """The end without an error: committed, or declined by `execute`."""

    def on_application(self) -> Awaitable[None] | None:  # noqa: B027 -- optional by contract
        """The committed transaction has been applied by this client's callbacks."""

    def on_expiration(self) -> Awaitable[None] | None:  # noqa: B027 -- optional by contract
        """It expired before it could be committed; certainly not in the log."""

    def on_exception(self, error: BaseException) -> Awaitable[None] | None:  # noqa: B027 -- optional by contract
        """It ended with an error; for an AppendError `error.outcome` says whether it can be in the log."""
