"""An exception that nobody foresaw (no memory, a mistake in the code), once, at any step of what the event
loop or the answer of a storage node calls of a partition and its store session.

Wherever it is, before the step or right after it: the partition takes mounts and appends again, whoever has a
feed gets on or is on a partition that has ended, and no answer has been given that the log contradicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from server_tests.registry_on_nodes import registry_on
from server_tests.store.fakes import PARTITION, Cluster, until
from waltz_protocol.frames.append_batch import Verdict
from waltz_protocol.messages.client import (
    BlockFeedRequest,
    FlushResponse,
    MountResponse,
    MountState,
)
from waltz_protocol.types import ReqId
from waltz_server.partition.append import AppendQueue
from waltz_server.partition.append_outcomes import AppendOutcomes
from waltz_server.partition.append_stages import AppendStages
from waltz_server.partition.block_feeds import BlockFeeds
from waltz_server.partition.feed import Feeds
from waltz_server.partition.feed_cache import PartitionFeedCache
from waltz_server.partition.mounts import MountRegistry
from waltz_server.partition.pending_answers import PendingAnswers
from waltz_server.partition.transaction_cache import PartitionTransactionCache
from waltz_server.registry import PartitionRegistry
from waltz_server.store import frames, replica_session
from waltz_server.store.committed_mark import CommittedMark
from waltz_server.store.frames import FrameQueue
from waltz_server.store.quorum_store import QuorumPartitionStore
from waltz_server.store.replica_session import ReplicaSession
from waltz_server.store.session import StoreSession
from waltz_server.store.session_confirmation import Confirmations
from waltz_server.store.voting import Votes
from waltz_testkit.client_peers import FakeClient, make_append
from waltz_testkit.partition_rig import PartitionRig

pytestmark = pytest.mark.looptime

STEPS: tuple[tuple[Any, str], ...] = (
    (AppendQueue, "_run"),
    (AppendQueue, "_admit"),
    (AppendQueue, "_take_off"),
    (AppendQueue, "committed"),
    (AppendQueue, "_settle"),
    (AppendStages, "handed_over"),
    (AppendOutcomes, "committed"),
    (QuorumPartitionStore, "append"),
    (QuorumPartitionStore, "commit"),
    (StoreSession, "append"),
    (StoreSession, "pump"),
    (StoreSession, "_advance"),
    (StoreSession, "_trim"),
    (StoreSession, "stored"),
    (FrameQueue, "add"),
    (FrameQueue, "build"),
    (FrameQueue, "drop_first"),
    (frames, "_wire_of"),
    (Votes, "sent"),
    (Votes, "stored"),
    (ReplicaSession, "send"),
    (ReplicaSession, "submit"),
    (ReplicaSession, "_answered"),
    (replica_session, "submit_run"),
    (Confirmations, "_start"),
    (Confirmations, "_answered"),
    (PendingAnswers, "passed"),
    (PendingAnswers, "advanced"),
    (PendingAnswers, "_ready"),
    (CommittedMark, "rise_to"),
    (PartitionFeedCache, "put"),
    (PartitionTransactionCache, "put_committed"),
    (MountRegistry, "valid"),
    (Feeds, "publish"),
    (Feeds, "_send"),
    (Feeds, "_serve"),
    (BlockFeeds, "publish"),
    (BlockFeeds, "_write"),
    (BlockFeeds, "_serve"),
)


class Once:
    """Raises at one call of a step, before or after it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], number: int, after: bool
    ) -> None:
        self.done = False
        self._left = number
        real = getattr(*step)

        def stepped(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left or self.done:
                return real(*args, **options)
            self.done = True
            if after:
                real(*args, **options)
            raise MemoryError

        monkeypatch.setattr(*step, stepped)


class Writer:
    """A client of whichever object serves the partition."""

    def __init__(self, registry: PartitionRegistry, client_id: int, version: int) -> None:
        self.client = FakeClient(client_id, version=version)
        self.sent: list[ReqId] = []
        self.before_flush: dict[ReqId, int] = {}
        self._registry = registry
        self._numbers = count(1)
        self.partition = registry.partitions[PARTITION]

    def req_id(self) -> ReqId:
        return ReqId(self.client.client_id, 1, PARTITION, next(self._numbers))

    def ask(self, what: Callable[..., None], *args: object) -> None:
        """A frame of its; what raises in there closes the connection."""
        try:
            what(self.client, *args)
        except MemoryError:
            self.client.close("internal error")
            self.partition.client_closed(self.client)

    def append(self) -> ReqId:
        self.sent.append(self.req_id())
        view = self.partition.high_water_mark or 0
        self.ask(self.partition.append, make_append(self.sent[-1], client_high_water_mark=view, write=(77,)))
        return self.sent[-1]

    def flush(self) -> None:
        req_id = self.req_id()
        self.before_flush[req_id] = len(self.sent)
        self.ask(self.partition.flush, req_id.pack(), 1)

    def mount(self) -> ReqId:
        req_id = self.req_id()
        self.ask(self.partition.mount, req_id.pack(), 1, -1)
        return req_id

    async def mounted(self) -> None:
        def ready() -> bool:
            now = self._registry.partitions.get(PARTITION)
            if now is not None and now is not self.partition:
                self.partition = now
                self.mount()
            return MountState.READY in [answer.state for answer in self.client.of(MountResponse)]

        self.mount()
        await until(ready)

    def feed(self) -> None:
        if self.client.version < 5:
            self.ask(self.partition.feed, self.req_id().pack(), 1, 0)
        else:
            request = BlockFeedRequest(
                req_id=self.req_id(),
                after=0,
                until=-1,
                credit_transactions=1000,
                credit_bytes=1 << 20,
                headers=(),
                flags=0,
            )
            self.ask(self.partition.block_feeds_of(self.client).open, request)

    def check(self, log: list[ReqId]) -> None:
        """Nothing that was reported failed is in the log, and what was reported committed is there."""
        for answer in self.client.of(FlushResponse):
            for req_id in self.sent[: self.before_flush[answer.req_id]]:
                assert req_id not in log[answer.transaction_id + 1 :], "a flush has reported it failed"
        if self.client.answers is not None:
            for said in self.client.answered():
                req_id = ReqId(self.client.client_id, said.generation, PARTITION, said.seq_num)
                if said.verdict is Verdict.COMMITTED:
                    assert log[said.number] == req_id
                elif said.verdict is not Verdict.UNDECIDED:
                    assert req_id not in log, f"it was answered {said.verdict}"


async def one_error(
    monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], number: int, *, after: bool
) -> bool:
    """False: the step is not taken so often."""
    async with Cluster() as cluster, registry_on(cluster, 1) as registry:
        registry.adopt({PARTITION: 1})
        await until(lambda: registry.health()[PARTITION][0])
        old, new = Writer(registry, 5, 4), Writer(registry, 6, 5)
        for writer in (old, new):
            await writer.mounted()
        old.append()
        await until(lambda: old.partition.high_water_mark == 0)
        old.feed()
        new.feed()
        await asyncio.sleep(0.1)
        with monkeypatch.context() as patched, capture_logs() as lines:
            once = Once(patched, step, number, after)
            for _ in range(2):
                for writer in (old, new):
                    writer.append()
                    await asyncio.sleep(0.001)
                    writer.flush()
                await asyncio.sleep(1.0)
            new.mount()
            late = Writer(registry, 7, 5) if PARTITION in registry.partitions else old
            late.mount()
            late.feed()
            await asyncio.sleep(1.0)
        await until(lambda: registry.health()[PARTITION][0])
        sizes = [len(writer.client.stream) for writer in (old, new)]
        last = Writer(registry, 8, 4)
        await last.mounted()
        sent = last.append()
        log = cluster.nodes["a:1"].txids
        await until(lambda: sent in log())
        await until(lambda: last.partition.high_water_mark == len(log()) - 1)
        for writer, size in zip((old, new), sizes, strict=True):
            if writer.partition is last.partition and not writer.client.closed:
                assert len(writer.client.stream) > size, "its feed has stopped"
        for writer in (old, new, late, last):
            writer.check(log())
        for node in cluster.nodes.values():
            assert len(set(node.txids())) == len(node.txids())
        if once.done and not any(writer.client.closed for writer in (old, new, late)):
            assert [line for line in lines if line["log_level"] in ("critical", "error")]
        registry.close()
        return once.done


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0].__name__.split('.')[-1]}.{step[1]}")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_safety_e1_one_unforeseen_error_at_any_step_stops_nothing_and_belies_nothing(
    monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], after: bool
) -> None:
    number = 1
    while number <= 4 and await one_error(monkeypatch, step, number, after=after):
        number += 1
    assert number > 1, "the step was never taken"


async def test_safety_e1_what_was_being_handed_to_the_store_when_that_failed_is_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ExceptionGroup):
        async with PartitionRig(auto_commit=False) as rig:
            client = FakeClient(1, version=5)
            await rig.mount(client)
            take = rig.store.append

            def take_and_fail(batch: Any) -> None:
                take(batch)
                raise MemoryError

            monkeypatch.setattr(rig.store, "append", take_and_fail)
            rig.append(client)
            await rig.turns()
    assert rig.partition.closed
    assert [one.verdict for one in client.answered()] == [Verdict.UNDECIDED]
