"""Random appends against a naive model: committed transactions are strictly serializable in id order (safety
D6).

The model knows nothing of slots, marks or queues. It replays the log from the beginning: a transaction is
legitimate only if no transaction between its client's high-water mark and itself wrote or appended one of its
write or read locks. Every append must end exactly once: in the log, or with a lock failure that names a
committed id.
"""

import asyncio
import random
from contextlib import nullcontext
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_protocol.aio.turns import Turns
from waltz_protocol.messages.client import LockFailure
from waltz_protocol.types import ReqId
from waltz_server.partition import append
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import GENERATION, PartitionRig, wire_record


@dataclass
class _Sent:
    hwm: int
    write: tuple[int, ...]
    read: tuple[int, ...]
    append: tuple[int, ...]


@settings(max_examples=160)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([30_000, 97, 3]), st.booleans())
def test_safety_d6_committed_transactions_are_strictly_serializable(
    seed: int, locks: int, slots: int, sliced: bool
) -> None:
    """`sliced`: every append is treated as one with many locks, looked up one by one over many turns."""
    with patch.object(append, "Append", object()) if sliced else nullcontext():
        asyncio.run(_run(random.Random(seed), locks, slots, sliced))


async def _run(rng: random.Random, lock_count: int, slots: int, sliced: bool) -> None:
    sent: dict[ReqId, _Sent] = {}
    lost: set[ReqId] = set()
    async with PartitionRig(
        auto_commit=False,
        settings=PartitionSettings(lock_table_size=slots),
        max_in_flight_bytes=600,
        turns=Turns(turn_units=10 if sliced else 20_000, slice_units=1),
    ) as rig:
        clients = [FakeClient(n) for n in range(1, 4)]
        for client in clients:
            await rig.mount(client)
        for _ in range(40):
            for _ in range(rng.randint(0, 4)):
                _send(rig, rng.choice(clients), rng, lock_count, sent, lost)
            await rig.turns(rng.randint(0, 3))
            if rng.random() < 0.6:
                rig.store.commit_next(rng.randint(0, rig.store.pending))
            if rng.random() < 0.05:
                _fail_over(rig, rng, lost)
        while rig.partition.undecided:
            await rig.turns()
            rig.store.commit_next()
        await rig.turns()
        failures = {m.req_id: m for client in clients for m in client.of(LockFailure)}
        _check(rig.logged(), sent, failures, lost)


def _send(
    rig: PartitionRig,
    client: FakeClient,
    rng: random.Random,
    lock_count: int,
    sent: dict[ReqId, _Sent],
    lost: set[ReqId],
) -> None:
    def some() -> tuple[int, ...]:
        return tuple(rng.randint(1, lock_count) for _ in range(rng.choice((0, 0, 1, 1, 2))))

    request = _Sent(
        rng.randint(max(len(rig.store.log) - 4, -1), len(rig.store.log) - 1), some(), some(), some()
    )
    generation = GENERATION - 1 if rng.random() < 0.05 else GENERATION
    req_id = rig.append(
        client,
        hwm=request.hwm,
        write=request.write,
        read=request.read,
        append=request.append,
        generation=generation,
    )
    sent[req_id] = request
    if generation != GENERATION:
        lost.add(req_id)  # dropped, or a lock failure


def _fail_over(rig: PartitionRig, rng: random.Random, lost: set[ReqId]) -> None:
    """A session dies, part of what was in flight is resolved as failed, sometimes another owner wrote
    meanwhile."""
    before = [ReqId.unpack(entry.req_id) for entry in rig.store._pending]
    rig.store.lose_session("at random")
    kept = rng.randint(0, len(before))
    lost.update(before[kept:])
    end = len(rig.store.log) + kept
    foreign = [wire_record(end + n) for n in range(rng.choice((0, 0, 2)))]
    rig.store.settle(committed=kept, foreign=foreign)
    rig.store.open_session()


def _check(
    log: list[ReqId], sent: dict[ReqId, _Sent], failures: dict[ReqId, LockFailure], lost: set[ReqId]
) -> None:
    assert len(set(log)) == len(log)
    for client_id in {req_id.client_id for req_id in sent}:
        own = [req_id.seq_num for req_id in log if req_id in sent and req_id.client_id == client_id]
        assert own == sorted(own)
    last_bump: dict[int, int] = {}
    everything = -1
    for transaction_id, req_id in enumerate(log):
        request = sent.get(req_id)
        if (
            request is None
        ):  # written by another owner under locks nobody here knows: conflicts with everything
            everything = transaction_id
            continue
        for lock in (*request.write, *request.read):
            assert max(last_bump.get(lock, -1), everything) <= request.hwm, (transaction_id, request)
        for lock in (*request.write, *request.append):
            last_bump[lock] = transaction_id
    committed = set(log)
    for req_id in sent:
        outcomes = (req_id in committed) + (req_id in failures) + (req_id in lost and req_id not in failures)
        assert outcomes == 1, (req_id, sent[req_id])
    assert all(0 <= failure.transaction_id < len(log) for failure in failures.values())
