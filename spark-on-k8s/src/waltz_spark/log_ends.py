"""Where the partitions of the log end: asked of the cluster by the driver.

An old owner of a partition may not know yet that it is one, and answer with an end that is too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from waltz_client import WaltzClientError
from waltz_spark.errors import UnavailableError
from waltz_spark.offsets import beyond

if TYPE_CHECKING:
    from waltz_client import WaltzClient
    from waltz_spark.connection import Connection

BEHIND_SECONDS = 30.0
"""How long an end of the log that lies before a position is asked for again."""
_BEHIND_PAUSE_SECONDS = 0.5


def ends_now(
    connection: Connection, partitions: Sequence[int], timeout_seconds: float
) -> tuple[dict[int, int], dict[int, str]]:
    """Next transaction id of every partition that answered, and why the others did not. Waits for them at the
    same time."""

    async def ask(client: WaltzClient) -> list[int | BaseException]:
        marks = (client.high_water_mark(p, deadline_seconds=timeout_seconds) for p in partitions)
        return await asyncio.gather(*marks, return_exceptions=True)

    ends: dict[int, int] = {}
    silent: dict[int, str] = {}
    for partition, answer in zip(partitions, connection.call(ask), strict=True):
        if isinstance(answer, int):
            ends[partition] = answer + 1
        elif isinstance(answer, WaltzClientError) and answer.retriable:
            silent[partition] = str(answer)
        else:
            raise answer
    return ends, silent


def all_ends(connection: Connection, partitions: Sequence[int], timeout_seconds: float) -> dict[int, int]:
    """Next transaction id of every partition; UnavailableError when one does not answer in time."""
    ends, silent = ends_now(connection, partitions, timeout_seconds)
    for reason in silent.values():
        raise UnavailableError(reason)
    return ends


def behind(
    connection: Connection,
    places: Mapping[int, int],
    ends: dict[int, int],
    timeout_seconds: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[tuple[int, int, int]]:
    """(partition, place, end) of every place behind the end of its log, as in `beyond`. Ends that lie before
    their place are asked for again for a while, and `ends` has the furthest ones. UnavailableError when a
    partition does not answer in time: that is no loss of data."""
    deadline = clock() + min(timeout_seconds, BEHIND_SECONDS)
    while (found := beyond(places, ends)) and clock() < deadline:
        sleep(_BEHIND_PAUSE_SECONDS)
        again = [partition for partition, _, _ in found]
        for partition, end in all_ends(connection, again, timeout_seconds).items():
            ends[partition] = max(end, ends[partition])
    return found
