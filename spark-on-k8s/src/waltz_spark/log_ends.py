"""Where the partitions of the log end: asked of the cluster by the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from waltz_client import WaltzClientError
from waltz_spark.errors import UnavailableError

if TYPE_CHECKING:
    from waltz_client import WaltzClient
    from waltz_spark.connection import Connection


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
