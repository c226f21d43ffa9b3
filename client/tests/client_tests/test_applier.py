"""Applying committed transactions: the end of an applier."""

import random
from typing import Any

import pytest

from waltz_client._internal.applier import Applier
from waltz_client.errors import ClientClosedError


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
