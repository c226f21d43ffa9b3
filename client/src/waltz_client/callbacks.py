"""What an application gives the client to have committed transactions applied (docs/applications.md)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from waltz_client.transaction import Transaction


class WaltzClientCallbacks(Protocol):
    """The three callbacks. Each may be a plain method or a coroutine function; plain ones must not block the
    loop.

    For one partition the callbacks are never concurrent and come in id order; different partitions may
    interleave at awaits. A callback under way is cancelled when the client closes or lets its partition go
    (`set_partitions`). If the partition is chosen again, the next callback waits until the cancelled one has
    ended, 30 s at most.
    """

    def client_high_water_mark(self, partition_id: int) -> int | Awaitable[int]:
        """The id of the last transaction the application has applied, -1 if none. Asked once per
        activation. A StopApplyingError stops the partition, as in `apply_transaction`; after any other error
        it is asked again."""
        ...

    def apply_transaction(self, transaction: Transaction) -> Awaitable[None] | None:
        """Apply one committed transaction (anybody's, own ones included).

        Must store the new mark together with its effects and be idempotent: delivery resumes at the stored
        mark + 1. If it raises, `uncaught_exception` is called and the same transaction is delivered again
        after a growing delay (10 ms to 10 s); later transactions of the partition wait, other partitions do
        not. A StopApplyingError ends that: the partition is not applied any longer by this client. It
        still takes appends; `submit` and `transact` to it end with the error.
        """
        ...

    def uncaught_exception(
        self, partition_id: int, transaction_id: int, error: Exception
    ) -> Awaitable[None] | None:
        """`apply_transaction` raised. An error of this callback is logged and ignored."""
        ...
