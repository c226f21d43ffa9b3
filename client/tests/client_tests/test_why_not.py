"""What an error says of a partition that is mounted, where something else is waited for."""

from __future__ import annotations

import asyncio

import pytest

from client_tests.helpers import Application
from waltz_client import (
    BYTES,
    PartitionUnavailableError,
    RequestDeadlineError,
    Transaction,
    TransactionBuilder,
)
from waltz_client.context import TransactionContext
from waltz_client.testing import InProcessLog

pytestmark = pytest.mark.looptime


class Write(TransactionContext):
    def partition_id(self, num_partitions: int) -> int:
        return 0

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_transaction_data(b"own", BYTES)
        return True


async def test_a_context_says_that_the_callbacks_are_behind() -> None:
    """Before: that the partition was moving to another connection, which it had done."""

    class Slow(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            if transaction.transaction_id == 2:
                await asyncio.sleep(3600)
            await super().apply_transaction(transaction)

    log = InProcessLog()
    for _ in range(4):
        log.partition(0).commit(b"before")
    async with log.client(Slow(), {"client.mountWait": 500}) as client:
        with pytest.raises(PartitionUnavailableError) as caught:
            await client.submit(Write())
        assert str(caught.value) == (
            "partition 0 was not available within 0.5 s: the callbacks have applied it up to transaction 1, "
            "and it was received up to transaction 3"
        )


async def test_who_waits_for_the_window_hears_of_it() -> None:
    log = InProcessLog()
    async with log.client(settings={"client.maxConcurrentTransactions": 1}) as client:
        await client.writable(0)
        log.partition(0).hold()
        client.append_nowait(partition=0, data=b"x", on_done=lambda _: None)
        with pytest.raises(RequestDeadlineError, match=r"within 1 s: too many appends are on their way$"):
            await client.writable(0, deadline_seconds=1)


async def test_a_range_of_a_mounted_partition_says_that_nothing_comes() -> None:
    log = InProcessLog()
    async with log.client(settings={"client.maxProtocolVersion": 4}) as client:
        await client.writable(0)
        log.partition(0).pause_feed()
        for _ in range(3):
            log.partition(0).commit(b"x")
        with pytest.raises(RequestDeadlineError, match=r"for 1 s: its server sends nothing$"):
            await anext(client.read_range(0, 0, 2, timeout_seconds=1))
