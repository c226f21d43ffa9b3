"""Applying committed transactions: the end of an applier."""

import asyncio
import random
from typing import Any

import pytest

from client_tests.helpers import Application
from waltz_client import BYTES, Transaction
from waltz_client._internal.applier import Applier
from waltz_client.errors import ClientClosedError
from waltz_client.testing import InProcessLog


class _Readers:
    partition_id = 3


class _Callbacks:
    asked = 0

    def client_high_water_mark(self, partition_id: int) -> int:
        self.asked += 1
        return -1


async def test_an_applier_that_was_stopped_before_it_ran_asks_nobody_and_complains_of_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    readers: Any = _Readers()
    callbacks: Any = _Callbacks()
    applier = Applier(readers, callbacks, fetch=None, random=random.Random(0), capacity=10)  # type: ignore[arg-type]
    applier.stop(ClientClosedError("the client is closed"))
    await applier.run()
    assert callbacks.asked == 0
    assert caplog.records == []


class _Reading(Application):
    """Asks for the payload; `error` in place of what that raises."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.reads = asyncio.Event()
        self.error = error

    async def apply_transaction(self, transaction: Transaction) -> None:
        self.reads.set()
        try:
            await transaction.data(BYTES)
        except ClientClosedError:
            if self.error is not None:
                raise self.error from None
            raise


@pytest.mark.parametrize("error", [None, ValueError("its own")])
async def test_what_is_being_applied_when_the_client_closes_is_no_failure(error: Exception | None) -> None:
    log, state = InProcessLog(num_partitions=1), _Reading(error)
    async with log.client(state) as client:
        await client.writable(0)
        log.partition(0).fail_next_reads(10**6)
        log.partition(0).commit(b"x")
        await state.reads.wait()
    assert state.errors == ([] if error is None else [(0, 0, "its own")])
