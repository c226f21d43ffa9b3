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
    VersionConflictError,
)
from waltz_cluster.serializers import MAX_ID, Counter
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.backoff import AROUND, Backoff


async def take_id(
    store: ZooKeeperStore, path: str, rng: random.Random, *, timeout_seconds: float = 30.0
) -> int:
    """The next id; IdsExhaustedError at the end of the counter, ConnectionLostError when ZooKeeper stays away
    for `timeout_seconds`. Cancellation may burn an id."""
    backoff = Backoff(0.005, 0.5, rng, spread=AROUND)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while True:
        try:
            data, stat = await store.get(path)
            taken = Counter.from_bytes(data).value + 1
            if taken > MAX_ID:
                raise IdsExhaustedError(f"{path}: all {MAX_ID} ids have been given out")
            await store.set(path, Counter(taken).to_bytes(), version=stat.version)
            return taken
        except NoNodeError:
            raise ClusterNotFoundError(f"{path} does not exist: the cluster is not complete") from None
        except (VersionConflictError, ConnectionLostError):
            if loop.time() >= deadline:
                raise
        await asyncio.sleep(backoff.next_seconds())
