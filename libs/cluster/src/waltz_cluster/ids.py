"""Taking an id from a counter (ZooKeeper layout, counter): read, write + 1 with the version read, repeat on
conflict.

An uncertain write burns the id it may have taken: the next attempt reads the counter anew and takes the next
one, so no id is ever given out twice. Counters are 32-bit and only grow; at the end they say so instead of
wrapping round.
"""

import asyncio
import random

from waltz_cluster.errors import (
    ClusterNotFoundError,
    ConnectionLostError,
    IdsExhaustedError,
    NoNodeError,
    SerializationError,
    VersionConflictError,
)
from waltz_cluster.serializers import MAX_ID, Counter
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.backoff import AROUND, Backoff


async def take_id(
    store: ZooKeeperStore, path: str, rng: random.Random, *, timeout_seconds: float = 30.0
) -> int:
    """The next id; errors as `take_ids`."""
    return (await take_ids(store, path, rng, 1, timeout_seconds=timeout_seconds))[0]


async def take_ids(
    store: ZooKeeperStore, path: str, rng: random.Random, count: int, *, timeout_seconds: float = 30.0
) -> range:
    """The next `count` ids, or as many as the counter has left, in one write. IdsExhaustedError at the end of
    the counter, SerializationError when it is below 0, ConnectionLostError when ZooKeeper stays away for
    `timeout_seconds`. Cancellation may burn them."""
    backoff = Backoff(0.005, 0.5, rng, spread=AROUND)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while True:
        try:
            data, stat = await store.get(path)
            before = Counter.from_bytes(data).value
            if before < 0:  # no release writes that, and ids up to 0 mean "none"
                raise SerializationError(f"{path}: the counter is {before}")
            taken = min(before + count, MAX_ID)
            if taken <= before:
                raise IdsExhaustedError(f"{path}: all {MAX_ID} ids have been given out")
            await store.set(path, Counter(taken).to_bytes(), version=stat.version)
            return range(before + 1, taken + 1)
        except NoNodeError:
            raise ClusterNotFoundError(f"{path} does not exist: the cluster is not complete") from None
        except (VersionConflictError, ConnectionLostError):
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(backoff.next_seconds())
