"""Writers in front of a full window: each gets its chance, in the order in which they came."""

import asyncio
from typing import Any

import pytest

from client_tests.conftest import ConnectClient
from waltz_client import WaltzClient
from waltz_client._internal.append.line import WritersLine
from waltz_protocol.aio.tasks import spawn

ROUNDS = 6
"""Appends that there are for each writer; all take from one sum, so that some can take more than others."""


async def _appends_of(client: WaltzClient, writers: int, data: bytes) -> list[int]:
    """How many appends each of as many writers got through that begin the next one at once."""
    await client.append(partition=0, data=b"first")
    counts = [0] * writers
    left = ROUNDS * writers

    async def write(number: int) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.append(partition=0, data=data, deadline_seconds=120)
            counts[number] += 1

    await asyncio.gather(*(write(number) for number in range(writers)))
    return counts


@pytest.mark.parametrize(
    ("settings", "writers", "data"),
    [
        ({"maxConcurrentTransactions": 2}, 6, b"x"),
        ({"maxConcurrentBytes": 1}, 6, b"x"),
        ({}, 1100, b"x"),
        ({}, 16, b"x" * 1_000_000),
    ],
    ids=["by number", "by bytes", "more than the default window", "large ones"],
)
async def test_every_writer_gets_its_turn(
    connect: ConnectClient, settings: dict[str, Any], writers: int, data: bytes
) -> None:
    counts = await _appends_of(await connect(**settings), writers, data)
    assert min(counts) * 2 >= max(counts), counts


async def test_a_writer_whose_chance_was_none_keeps_its_place() -> None:
    line = WritersLine(lambda: None)
    order: list[str] = []

    async def write(name: str, chances: int) -> None:
        ticket = line.ticket()
        for _ in range(chances):
            await line.wait(ticket)
        order.append(name)

    writers = [spawn(write(name, chances), "writer") for name, chances in (("a", 2), ("b", 2), ("c", 1))]
    await asyncio.sleep(0)
    line.wake(2)
    await asyncio.sleep(0)
    assert (len(line), line.woken) == (3, 0)
    for _ in range(3):
        line.wake(1)
        await asyncio.sleep(0)
    await asyncio.gather(*writers)
    assert order == ["a", "b", "c"]


async def test_one_that_is_cancelled_before_it_was_woken_takes_no_chance() -> None:
    """Its task has not run yet when the chance comes."""
    line = WritersLine(lambda: None)
    first, second = (spawn(line.wait(line.ticket()), "writer") for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    line.wake(1)
    await asyncio.wait([first, second])
    assert first.cancelled()
    assert not second.cancelled()
    assert (len(line), line.woken) == (0, 0)
