"""What locks cost the server's loop: an append with one, ten, a thousand and as many locks as are taken, from
its bytes to its commit.

In one process and without a network or a store, so it shows what the machine's noise hides elsewhere:
parsing, the queue, the look-up in the lock table, and raising it. The smallest of many rounds counts.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence

from bench.figures import Figure, Target, Wanted
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import MAX_LOCKS, encode_append, parse_append
from waltz_server.partition.owned_partition import Partition
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import GENERATION, PARTITION, PartitionRig

_ROUNDS = 200
_APPENDS = 200
_DATA = bytes(512)
_MANY = (1000, MAX_LOCKS)
PER_LOCK_TARGET = Target(Wanted.AT_MOST, 10.0)
"""Microseconds per lock of a large append ÷ those of an append with ten locks, whose slots are remembered:
nothing about many locks may grow faster than their number."""


async def measure_locks() -> list[Figure]:
    """Microseconds per append, and per lock of large ones against small ones."""
    per_append = {count: await _seconds_per_append(count) * 1e6 for count in (0, 1, 2, 10)}
    figures = [
        Figure(
            "cost of locks in the server", f"append with {count} locks", value, "us", load="512 B, no network"
        )
        for count, value in per_append.items()
    ]
    ten = (per_append[10] - per_append[0]) / 10
    for count in _MANY:
        value = (await _seconds_per_append(count) * 1e6 - per_append[0]) / count
        figures.append(
            Figure(
                "cost of locks in the server",
                f"per lock, {count:,} / 10 locks",
                value / ten,
                "",
                PER_LOCK_TARGET,
                "512 B, no network",
                f"{value:.2f} us per lock, {ten:.2f} with ten",
            )
        )
    return figures


async def _seconds_per_append(locks: int) -> float:
    appends = max(1, min(_APPENDS, 20_000 // max(1, locks)))
    best = float("inf")
    async with PartitionRig(auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        for _ in range(max(3, _ROUNDS // max(1, locks // 10))):
            view = len(rig.store.log) - 1
            best = min(best, await _round(rig, client, _bodies(appends, locks, view)))
    return best / appends


def _bodies(appends: int, locks: int, view: int) -> list[memoryview]:
    """Requests with `locks` locks each, none twice, by a client that has seen the log up to `view`."""
    req_id = struct.pack(">iiii", 1, GENERATION, PARTITION, 0)
    own = (range(number * locks, (number + 1) * locks) for number in range(appends))
    frames = (encode_append(req_id, view, write, (), (), 0, _DATA, 4) for write in own)
    return [memoryview(frame)[FRAME_HEADER_SIZE:] for frame in frames]


async def _round(rig: PartitionRig, client: FakeClient, bodies: Sequence[memoryview]) -> float:
    """One turn's appends, admitted and committed."""
    partition: Partition = rig.partition
    started = time.perf_counter()
    for body in bodies:
        append = parse_append(body, 4)
        if append is not None:
            partition.append(client, append)
    while rig.store.pending < len(
        bodies
    ):  # a commit before the last one is admitted would raise slots that they share
        await asyncio.sleep(0)
    rig.store.commit_next()
    return time.perf_counter() - started
