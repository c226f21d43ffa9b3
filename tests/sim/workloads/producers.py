"""A named producer: two processes open clients of one name, at the same time and one after another, crash
between an append and its answer, and send again what they do not know to be written (ADR 38).

They share a list of numbered events that outlives every crash, as an outbox does. Mostly both have the same
content for a number; now and then one has its own, of which the log may have one only.

Violation `producer`: one epoch twice, two ids for one number, another id or content than was answered,
`last_sequence` below a number that an instance has seen committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import AppendOp, Outcome, Violation
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.workloads import headers
from tests.sim.workloads.crash import crash
from tests.sim.workloads.pace import meet
from tests.sim.workloads.tracked import TrackedClient, open_client
from waltz_client import (
    Append,
    AppendError,
    Committed,
    ProducerFencedError,
    SequenceInUseError,
    WaltzClientError,
)

NAME = "producers"
PRODUCER = "outbox"
INSTANCES = 2
OWN_CONTENT = 0.15
CHECKPOINT_MS = 3_000


class Outbox:
    """Numbered events of one partition; survives every kill."""

    def __init__(self, access: ClusterAccess, partition: int) -> None:
        self._access = access
        self.partition = partition
        self._contents: dict[int, list[AppendOp]] = {}
        self._chosen: dict[tuple[str, int], AppendOp] = {}
        self.written: dict[int, tuple[int, AppendOp]] = {}
        """Number -> transaction id and content that somebody was answered."""

    def event(self, process: str, number: int, rng: random.Random) -> AppendOp:
        """What this process has for a number, always the same."""
        chosen = self._chosen.get((process, number))
        if chosen is not None:
            return chosen
        contents = self._contents.setdefault(number, [])
        if not contents or (len(contents) < INSTANCES and rng.random() < OWN_CONTENT):
            op = self._access.history.invoke(
                process, NAME, self.partition, {"number": number}, header=headers.PRODUCERS
            )
            contents.append(op)
        self._chosen[process, number] = op = rng.choice(contents)
        return op

    def note(self, number: int, op: AppendOp, result: Committed | AppendError) -> None:
        """An answer. What is unknown stays open: it is sent again."""
        if isinstance(result, Committed):
            known = self.written.setdefault(number, (result.transaction_id, op))
            if known != (result.transaction_id, op):
                self.report(f"number {number} is at {known[0]} and was answered with {result.transaction_id}")
            elif op.outcome is Outcome.PENDING:
                self._access.history.committed(op, result.transaction_id)
        elif isinstance(result, SequenceInUseError) and result.transaction_id is not None:
            known_at = self.written.get(number)
            if known_at is not None and (known_at[0] != result.transaction_id or known_at[1] is op):
                self.report(
                    f"number {number} is at {known_at[0]}, and refused because of {result.transaction_id}"
                )
            elif op.outcome is Outcome.PENDING:
                self._access.history.failed(op, "SequenceInUseError")

    def report(self, text: str) -> None:
        """Of this partition."""
        self._access.history.report(Violation("producer", f"partition {self.partition}: {text}"))


class Producers:
    """The instances."""

    def __init__(self, mean_seconds: float = 1.2) -> None:
        self.name = NAME
        self._mean = mean_seconds
        self._outboxes: dict[int, Outbox] = {}
        self._epochs: set[int | None] = set()

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """All of one producer."""
        self._outboxes = {partition: Outbox(access, partition) for partition in range(access.partitions)}

        def main(name: str) -> Callable[[], Any]:
            rng = access.rng(name)
            return lambda: self._run(access, name, rng)

        return [(name, main(name)) for name in (f"producer-{number}" for number in range(INSTANCES))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random) -> None:
        while await meet(access, rng, self._mean):
            async with open_client(
                access, name, None, producer=PRODUCER, producer_checkpoint_ms=CHECKPOINT_MS
            ) as client:
                epoch = client.client.producer_epoch
                if epoch in self._epochs:
                    self._outboxes[0].report(f"two instances have the epoch {epoch}")
                self._epochs.add(epoch)
                try:
                    await self._instance(access, client, name, rng)
                except ProducerFencedError:
                    access.history.counts["producers fenced"] += 1

    async def _instance(
        self, access: ClusterAccess, client: TrackedClient, name: str, rng: random.Random
    ) -> None:
        places: dict[int, int] = {}
        while await meet(access, rng, self._mean):
            outbox = self._outboxes[rng.randrange(access.partitions)]
            partition = outbox.partition
            if partition not in places or rng.random() < 0.1:
                known = max(outbox.written, default=-1)
                try:
                    last = await client.client.last_sequence(partition, deadline_seconds=10.0)
                except WaltzClientError as error:
                    client.note_client_ahead(error)
                    continue
                if last < known:
                    outbox.report(f"the last number is {last}, and {known} is written")
                places[partition] = max(0, last + 1 - rng.choice((0, 0, 1, 4)))
            first, count = places[partition], rng.choice((1, 1, 2, 6))
            if await self._send(outbox, client, name, rng, range(first, first + count)):
                places[partition] = first + count
            if rng.random() < 0.05:
                return

    async def _send(
        self, outbox: Outbox, client: TrackedClient, name: str, rng: random.Random, numbers: range
    ) -> bool:
        """Whether all of them have an end."""
        events = [outbox.event(name, number, rng) for number in numbers]
        appends = [
            Append(op.partition, op.data, op.header, context=op, sequence=number)
            for number, op in zip(numbers, events, strict=True)
        ]
        deadline = rng.choice((0.01, 0.5, 10.0, 10.0))
        if rng.random() < 0.1:
            async with asyncio.TaskGroup() as group:
                group.create_task(client.client.append_many(appends, deadline_seconds=10.0))
                await asyncio.sleep(rng.choice((0.0, 0.001, 0.005, 0.02)))
                await crash()
        results = await client.client.append_many(appends, deadline_seconds=deadline)
        for number, op, result in zip(numbers, events, results, strict=False):
            outbox.note(number, op, result)
        for result in results:
            if isinstance(result, ProducerFencedError):
                raise result
        ended = (Committed, SequenceInUseError)
        return len(results) == len(events) and all(isinstance(result, ended) for result in results)
