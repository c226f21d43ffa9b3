"""SqlCallbacks: the callbacks of a client that keep the application's state in a database."""

from __future__ import annotations

import logging

from waltz_client.errors import StopApplyingError
from waltz_client.sql.applier import SqlApplier
from waltz_client.transaction import FeedTransaction, Transaction

log = logging.getLogger(__name__)


class SqlCallbacks(SqlApplier):
    """`async with SqlCallbacks(engine, apply) as callbacks, WaltzClient.connect(settings, callbacks) as
    client: ...`

    Implements `WaltzClientCallbacks`: everything of the log is applied through `apply`, and contexts that
    are submitted build on it. One database transaction per transaction. A partition that stops stays stopped
    for as long as the client lives (or until it is let go and chosen again with `set_partitions`);
    `submit` to it ends with the error that stopped it.
    """

    async def client_high_water_mark(self, partition_id: int) -> int:
        """The mark in the database. Its errors stop the partition."""
        self.stopped.pop(partition_id, None)
        try:
            return await self.high_water_mark(partition_id)
        except StopApplyingError as error:
            self._report_stop(partition_id, error)  # the client logs it
            raise

    async def apply_transaction(self, transaction: Transaction) -> None:
        """Apply one transaction and its mark. Its errors stop the partition."""
        data = await transaction.raw_data() if self.wants_data(transaction.header) else None
        fields = (*transaction.req_id, transaction.transaction_id, transaction.header)
        await self.apply([FeedTransaction(fields, data)])

    async def uncaught_exception(self, partition_id: int, transaction_id: int, error: Exception) -> None:
        """Called once with an error that stops the partition (see `on_stopped`). After any other the client
        tries again."""
        if isinstance(error, StopApplyingError):
            self._stopped(partition_id, error)
        else:
            log.error(
                "partition %d: applying transaction %d failed, trying again: %r",
                partition_id,
                transaction_id,
                error,
                extra={"partition": partition_id, "transaction": transaction_id},
            )
