"""The load of the fan-out figures: many clients that follow the log, and one that writes.

    python -m bench.follow CONFIG tail --clients 10 --partitions 8 --rate 4000 --seconds 5
    python -m bench.follow CONFIG idle --clients 10 --partitions 1000
    python -m bench.follow CONFIG many --seconds 5

`tail`: each client gets, with data, what is committed from now on, while `--rate` transactions are appended
per second. `idle`: each client opens a feed on each partition; prints `ready`, and ends with its standard
input. `many`: one writer appends a hundred at a time. `tail` and `many` print one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from contextlib import AsyncExitStack

import uvloop

from bench.load import WARM_UP_SECONDS, mount_all, rates
from bench.processes import CpuWatch
from waltz_client import Append, WaltzClient

BATCHES_PER_SECOND = 100
WRITING = 20
MANY = 100
MOUNT_SECONDS = 120.0


class Counted:
    """What was delivered to all followers, and appended."""

    def __init__(self) -> None:
        self.delivered = 0
        self.appended = 0
        self.stopped = False


async def follow(client: WaltzClient, partitions: range, seen: Counted, after: int | None) -> None:
    """One follower."""
    async with client.feed(partitions, after=after) as feed:
        async for batch in feed.batches():
            seen.delivered += len(batch)


async def write_paced(client: WaltzClient, partitions: range, rate: int, data: bytes, seen: Counted) -> None:
    """`rate` per second, in small batches over all partitions in turn, as long as no more than `WRITING` of
    them are on their way."""
    size, due, number = rate // BATCHES_PER_SECOND, time.perf_counter(), 0
    room = asyncio.Semaphore(WRITING)

    async def write(batch: list[Append]) -> None:
        try:
            await client.append_many(batch)
            seen.appended += len(batch)
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        while not seen.stopped:
            due += 1 / BATCHES_PER_SECOND
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await room.acquire()
            batch = [Append(partitions[(number + one) % len(partitions)], data) for one in range(size)]
            number += size
            group.create_task(write(batch))


async def tail(options: argparse.Namespace) -> dict[str, object]:
    """Processor time of the servers while all follow."""
    partitions, seen = range(options.partitions), Counted()
    watch = CpuWatch(json.loads(options.pids))
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(WaltzClient.connect(options.config))
            for _ in range(options.clients + 1)
        ]
        await mount_all(clients[0], options.partitions)
        async with asyncio.TaskGroup() as group:
            followers = [group.create_task(follow(one, partitions, seen, None)) for one in clients[1:]]
            data = os.urandom(options.payload)
            writing = group.create_task(write_paced(clients[0], partitions, options.rate, data, seen))
            await asyncio.sleep(WARM_UP_SECONDS)
            delivered, appended = seen.delivered, seen.appended
            watch.start()
            await asyncio.sleep(options.seconds)
            cpu = watch.stop()
            delivered, appended = seen.delivered - delivered, seen.appended - appended
            seen.stopped = True
            await writing
            for follower in followers:
                follower.cancel()
    return {"delivered": delivered, "appended": appended, "cpu_seconds": cpu}


async def idle(options: argparse.Namespace) -> None:
    """Open all feeds, and do nothing until standard input ends."""
    seen = Counted()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(WaltzClient.connect(options.config))
            for _ in range(options.clients)
        ]
        async with asyncio.TaskGroup() as group:
            partitions = range(options.partitions)
            followers = [group.create_task(follow(one, partitions, seen, -1)) for one in clients]
            async with asyncio.timeout(MOUNT_SECONDS):
                await clients[0].append_many([Append(one, b"here") for one in partitions])
                while seen.delivered < options.partitions * options.clients:  # each feed is open
                    await asyncio.sleep(0.2)
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)
            for follower in followers:
                follower.cancel()


async def many(options: argparse.Namespace) -> dict[str, object]:
    """One writer, a hundred at a time."""
    data = [Append(0, os.urandom(options.payload)) for _ in range(MANY)]
    watch = CpuWatch(json.loads(options.pids) | {"client": [os.getpid()]})
    async with WaltzClient.connect(options.config) as client:
        await mount_all(client, 1)
        done, until = 0, time.perf_counter() + WARM_UP_SECONDS
        while time.perf_counter() < until:
            await client.append_many(data)
        watch.start()
        started = time.perf_counter()
        while time.perf_counter() < started + options.seconds:
            done += sum(isinstance(one, tuple) for one in await client.append_many(data))
        return rates(done, time.perf_counter() - started, watch.stop())


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.follow", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("config", help="configuration file of the clients")
    parser.add_argument("what", choices=("tail", "idle", "many"))
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rate", type=int, default=4000, help="transactions appended per second")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--payload", type=int, default=512)
    parser.add_argument("--pids", default="{}", help="JSON: processes whose CPU time is measured, by role")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> None:
    if options.what == "idle":
        await idle(options)
        return
    print(json.dumps(await (tail if options.what == "tail" else many)(options)), flush=True)


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    uvloop.run(run(parse_options()))
