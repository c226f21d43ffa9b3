"""The load of the contention figures: a process with closed-loop writers under locks, and a bystander.

    python -m bench.contend CONFIG --writers 50 --locks 10 --seconds 5 [--clients 1] [--followers 49]

Each writer is a client of its own, as small services are, or they share `--clients`, as the requests of a
service do. A writer takes one lock drawn at random for each transaction; one that lost begins again when its
client has received what it lost to. The bystander appends one
transaction after another to the same partition. Followers are clients that only receive what is committed.
Prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import time
from contextlib import AsyncExitStack

import uvloop

from bench.latency import percentiles_ms
from waltz_client import BYTES, LockId, TransactionBuilder, WaltzClient

WARM_UP_SECONDS = 1.0


class Contention:
    """What all writers did since `start`."""

    def __init__(self, writers: int) -> None:
        self.committed = [0] * writers
        self.attempts = 0
        self.latencies: list[float] = []
        self.stopped = False

    def start(self) -> None:
        """Forget what there was."""
        self.committed = [0] * len(self.committed)
        self.attempts = 0
        self.latencies.clear()


async def contend(client: WaltzClient, number: int, locks: int, data: bytes, seen: Contention) -> None:
    """One writer under locks of the partition 0."""
    draw = random.Random(number)
    while not seen.stopped:
        lock = LockId("hot", draw.randrange(locks))

        def decide(builder: TransactionBuilder, lock: LockId = lock) -> None:
            seen.attempts += 1
            builder.set_transaction_data(data, BYTES).set_write_locks([lock])

        await client.transact(0, decide)
        seen.committed[number] += 1


async def stand_by(client: WaltzClient, data: bytes, seen: Contention) -> None:
    """The bystander."""
    while not seen.stopped:
        started = time.perf_counter()
        await client.append(partition=0, data=data)
        seen.latencies.append(time.perf_counter() - started)


async def run(options: argparse.Namespace) -> dict[str, object]:
    """The measured part; counts per second, and the bystander's latency."""
    data = os.urandom(options.payload)
    seen = Contention(options.writers)
    shared = options.clients or options.writers
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(WaltzClient.connect(options.config))
            for _ in range(shared + 1 + options.followers)
        ]
        for client in clients:
            await client.append(partition=0, data=b"mount")
        async with asyncio.TaskGroup() as group:
            for number in range(options.writers):
                group.create_task(contend(clients[number % shared], number, options.locks, data, seen))
            group.create_task(stand_by(clients[shared], data, seen))
            await asyncio.sleep(WARM_UP_SECONDS)
            seen.start()
            started = time.perf_counter()
            await asyncio.sleep(options.seconds)
            seconds = time.perf_counter() - started
            committed, attempts, latencies = list(seen.committed), seen.attempts, list(seen.latencies)
            seen.stopped = True
    p50, p99 = percentiles_ms([(latency, 1) for latency in latencies], (0.5, 0.99))
    mean = sum(committed) / len(committed)
    return {
        "committed_per_second": sum(committed) / seconds,
        "decisions_per_second": attempts / seconds,
        "least_share": min(committed) / mean if mean else 0.0,
        "bystander_p50_ms": p50,
        "bystander_p99_ms": p99,
    }


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.contend", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("config", help="configuration file of the clients")
    parser.add_argument("--writers", type=int, required=True)
    parser.add_argument("--locks", type=int, required=True)
    parser.add_argument("--clients", type=int, help="that the writers share (default: one for each writer)")
    parser.add_argument("--followers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--payload", type=int, default=512)
    parser.add_argument("--pids", help="taken for the sake of the other loads")
    return parser.parse_args()


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    print(json.dumps(uvloop.run(run(parse_options()))), flush=True)
