"""The writers. Each works in all partitions of one client object, at a measured pace, until it is asked to
stop."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from tests.integration.nemesis.load.context import Context
from tests.integration.nemesis.load.payload import ACCOUNTS, COUNTERS, Payload, Replica, decode
from waltz_client import LockId, PendingAppend, WaltzClient
from waltz_client.errors import (
    AppendError,
    LockConflictError,
    PartitionUnavailableError,
    RequestDeadlineError,
    WindowFullError,
)

_DEADLINE_SECONDS = 20.0
_PACE_SECONDS = 0.05
_CAUGHT_UP_SECONDS = 10.0
_PIPELINE_BURST = 20
_PIPELINE_PACE_SECONDS = 0.5
_LARGE_BYTES = 30_000


async def bank(client: WaltzClient, context: Context) -> None:
    """Transfers under write locks, decided on balances that the writer has applied; audits under read
    locks."""
    await _on_replicas(client, context, _transfer_or_audit)


async def counters(client: WaltzClient, context: Context) -> None:
    """Increments under append locks, which never conflict with each other; counts under read or write
    locks."""
    await _on_replicas(client, context, _increment_or_count)


async def blind(client: WaltzClient, context: Context) -> None:
    """Pipelined appends without locks, without retries: their order in the log is the order they were sent
    in."""
    async with asyncio.TaskGroup() as group:
        for partition in range(client.num_partitions):
            group.create_task(_pipeline(client, context, partition))


# -- writers that decide on what they have read --------------------------------------------------------------


@dataclass(frozen=True)
class _Chosen:
    """A payload and its locks."""

    payload: Payload
    write_locks: Sequence[LockId] = ()
    read_locks: Sequence[LockId] = ()
    append_locks: Sequence[LockId] = ()


_Decide = Callable[[str, Replica, random.Random], _Chosen]


def _transfer_or_audit(name: str, replica: Replica, rng: random.Random) -> _Chosen:
    if rng.random() < 0.1:
        locks = [LockId("account", each) for each in range(ACCOUNTS)]
        return _Chosen(Payload(name, "audit", {"balances": list(replica.balances)}), read_locks=locks)
    giver, taker = rng.sample(range(ACCOUNTS), 2)
    body = {
        "from": giver,
        "to": taker,
        "amount": rng.randint(1, 10),
        "read": [replica.balances[giver], replica.balances[taker]],
    }
    return _Chosen(
        Payload(name, "transfer", body), write_locks=[LockId("account", giver), LockId("account", taker)]
    )


def _increment_or_count(name: str, replica: Replica, rng: random.Random) -> _Chosen:
    counter = rng.randrange(COUNTERS)
    lock = [LockId("counter", counter)]
    if rng.random() < 0.7:
        return _Chosen(Payload(name, "increment", {"counter": counter}), append_locks=lock)
    payload = Payload(name, "count", {"counter": counter, "counted": replica.counts[counter]})
    return _Chosen(payload, read_locks=lock) if rng.random() < 0.5 else _Chosen(payload, write_locks=lock)


async def _on_replicas(client: WaltzClient, context: Context, decide: _Decide) -> None:
    async with asyncio.TaskGroup() as group:
        for partition in range(client.num_partitions):
            group.create_task(_on_replica(client, context, decide, partition))


async def _on_replica(client: WaltzClient, context: Context, decide: _Decide, partition: int) -> None:
    """Follow one partition and write to it."""
    replica = Replica()
    moved = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(_follow(client, partition, replica, moved))
        await _catch_up(client, partition, replica, moved)
        while not context.stop.is_set():
            name = context.new_name()
            chosen = decide(name, replica, context.rng)
            context.journal.sending(name)
            try:
                done = await client.append(
                    partition=partition,
                    data=chosen.payload.encode(),
                    as_of=replica.applied,
                    deadline_seconds=_DEADLINE_SECONDS,
                    write_locks=chosen.write_locks,
                    read_locks=chosen.read_locks,
                    append_locks=chosen.append_locks,
                )
            except LockConflictError as error:
                context.journal.ended(name, error)
                await _until_applied(replica, moved, error.conflicting_high_water_mark)
            except AppendError as error:
                context.journal.ended(name, error)
            else:
                context.journal.acknowledged(name, *done)
            await context.pause(_PACE_SECONDS)
        follower.cancel()


async def _follow(client: WaltzClient, partition: int, replica: Replica, moved: asyncio.Event) -> None:
    async with client.feed(partition, after=-1) as feed:
        async for batch in feed.batches():
            for transaction in batch:
                replica.apply(transaction.transaction_id, decode(transaction.data or b""))
            moved.set()


async def _catch_up(client: WaltzClient, partition: int, replica: Replica, moved: asyncio.Event) -> None:
    try:
        mark = await client.high_water_mark(partition, deadline_seconds=_CAUGHT_UP_SECONDS)
    except RequestDeadlineError:
        return  # then the first appends will conflict
    await _until_applied(replica, moved, mark)


async def _until_applied(replica: Replica, moved: asyncio.Event, mark: int) -> None:
    """Wait until the replica has read up to `mark`, or long enough."""
    try:
        async with asyncio.timeout(_CAUGHT_UP_SECONDS):
            while replica.applied < mark:
                moved.clear()
                await moved.wait()
    except TimeoutError:
        pass  # the next append will conflict again, which is fine


# -- the blind one -------------------------------------------------------------------------------------------


async def _pipeline(client: WaltzClient, context: Context, partition: int) -> None:
    numbers = count()
    while not context.stop.is_set():
        try:
            await client.writable(partition, deadline_seconds=_DEADLINE_SECONDS)
            for _ in range(_PIPELINE_BURST):
                _send_blind(client, context, partition, numbers)
        except (RequestDeadlineError, WindowFullError, PartitionUnavailableError):
            pass  # the partition is between two owners, or slow
        await context.pause(_PIPELINE_PACE_SECONDS)


def _send_blind(client: WaltzClient, context: Context, partition: int, numbers: Iterator[int]) -> None:
    name = context.new_name()
    # Named by place in the order of sending per client object, so that the checker can hold the log against
    # it.
    payload = Payload(
        name, "blind", {"stream": f"{context.name}/{client.client_id}", "number": next(numbers)}
    )
    size_bytes = _LARGE_BYTES if context.rng.random() < 0.02 else 0

    def on_done(pending: PendingAppend) -> None:
        if pending.committed:
            context.journal.acknowledged(name, partition, pending.transaction_id)
        elif pending.error is not None:
            context.journal.ended(name, pending.error)

    context.journal.sending(name)
    try:
        client.append_nowait(partition=partition, data=payload.encode(size_bytes), on_done=on_done)
    except (WindowFullError, PartitionUnavailableError):
        context.journal.not_sent(name)
        raise
