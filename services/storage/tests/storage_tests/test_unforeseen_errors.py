"""An error that nobody foresaw, once, at each step between a request and its reply: everything is answered,
or the node ends; in the end it holds what it has acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import structlog

from waltz_protocol.aio.unsent import UnsentReplies
from waltz_protocol.codec import STORAGE
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.messages import storage
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.engine.free_space import FreeSpace
from waltz_storage.engine.journal.log import JournalSettings
from waltz_storage.engine.partition import Partition
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.disk_pool import DiskPool, PartitionQueue
from waltz_storage.service.inline import InlineLimits
from waltz_storage.service.job_order import JobLine
from waltz_storage.service.jobs import Job
from waltz_storage.service.metrics import StorageMetrics
from waltz_storage.service.requests import APPEND, Request
from waltz_testkit.faulty_disk import CrashMode

from .support import JOURNAL, assert_holds, batch, empty_disk, open_manager

SESSION = 4

Step = tuple[type, str]
ALWAYS: list[Step] = [
    (DiskPool, "became_busy"),
    (DiskPool, "became_idle"),
    (DiskPool, "count"),
    (DiskPool, "submit"),
    (DiskPool, "_finished"),
    (DiskPool, "_run"),
    (PartitionQueue, "done"),
    (PartitionQueue, "proceed"),
    (Job, "__init__"),
    (Job, "run"),
    (Request, "success"),
    (UnsentReplies, "sent"),
    (Partition, "append"),
]
IN_BATCHES: list[Step] = [
    (DiskPool, "_run_batch"),
    (DiskPool, "_settle_when_due"),
    (FreeSpace, "batch_begins"),
    (FreeSpace, "batch_ends"),
    (StorageManager, "commit"),
]
ON_THREADS: list[Step] = [
    (DiskPool, "_back_from_thread"),
    (DiskPool, "_to_thread"),
    (ThreadPoolExecutor, "submit"),
]
WAYS: list[tuple[str, JournalSettings | None, bool, list[Step]]] = [
    ("files", None, False, [*ON_THREADS, (JobLine, "add"), (JobLine, "take")]),
    ("journal", JOURNAL, False, [*ON_THREADS, *IN_BATCHES, (DiskPool, "_schedule_batch")]),
    ("files-inline", None, True, IN_BATCHES),
    ("journal-inline", JOURNAL, True, IN_BATCHES),
]
"""Of an append: its name, the journal, whether it runs on the loop, and what it takes beside `ALWAYS`."""
CASES = [
    pytest.param(journal, inline, *step, behind, id=f"{way}-{step[0].__name__}.{step[1]}-{place}")
    for way, journal, inline, more in WAYS
    for step in (*ALWAYS, *more)
    for behind, place in ((False, "before"), (True, "behind"))
]


class Replies:
    """A connection."""

    def __init__(self) -> None:
        self.closed = False
        self.version = 0
        self.pending_bytes = 0
        self.answers: dict[int, bool] = {}
        """Whether it was Success, by the number of the request."""

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        if self.closed:
            return
        for part in parts:
            answer = STORAGE.decode(memoryview(part)[FRAME_HEADER_SIZE:], 0)
            assert isinstance(answer, storage.SuccessResponse | storage.FailureResponse)
            assert answer.seq_num not in self.answers
            self.answers[answer.seq_num] = isinstance(answer, storage.SuccessResponse)


def append_of(channel: Replies, partition_id: int, txid: int) -> Request:
    request = Request(channel, APPEND, SESSION, txid, partition_id, 0.0)
    request.batch = batch(txid)
    return request


def fails_once(real: Callable[..., Any], raised: list[MemoryError], *, behind: bool) -> Callable[..., Any]:
    """In place of a function: raises before the real one, or behind it."""

    def fails(*arguments: Any, **named: Any) -> Any:
        if raised:
            return real(*arguments, **named)
        raised.append(MemoryError())
        if behind:
            real(*arguments, **named)
        raise raised[0]

    return fails


class Node:
    """Two partitions with a connection each."""

    def __init__(
        self, executor: ThreadPoolExecutor, journal: JournalSettings | None, *, inline: bool
    ) -> None:
        self.disk = empty_disk()
        self.journal = journal
        manager = open_manager(self.disk, journal=journal)
        for partition_id in (0, 1):
            manager.assign(partition_id)
        manager.commit()
        self.inline = inline
        self.connections = [Replies(), Replies()]
        self.defects: list[Exception] = []
        self.pool = DiskPool(
            manager,
            executor,
            StorageMetrics(MetricsRegistry(), manager),
            inline_limits=InlineLimits(trial_jobs=0) if inline else None,
            on_defect=self.defects.append,
        )

    def append(self, txid: int) -> None:
        """One to each partition, in two turns; an error in the turn of a connection closes that one."""
        for partition_id, connection in enumerate(self.connections):
            queue = self.pool.queue(partition_id)
            kick = partial(queue.kick, alone=self.inline)
            for step in (partial(queue.offer, append_of(connection, partition_id, txid)), kick):
                try:
                    step()
                except MemoryError:
                    connection.closed = True

    def answered(self, txid: int) -> bool:
        return all(c.closed or c.answers.keys() >= {txid} for c in self.connections)

    async def ends_or(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not self.defects and not condition():
                await asyncio.sleep(0.001)

    def assert_holds_what_it_acknowledged(self) -> None:
        """After a loss of power."""
        self.disk.restart(CrashMode.LOSE)
        manager = open_manager(self.disk, journal=self.journal)
        for partition_id, connection in enumerate(self.connections):
            partition = manager.get(partition_id)
            acknowledged = [txid for txid, done in connection.answers.items() if done]
            assert acknowledged == list(range(len(acknowledged)))
            assert_holds(partition, len(acknowledged))


@pytest.mark.parametrize(("journal", "inline", "owner", "name", "behind"), CASES)
async def test_safety_c1_everything_is_answered_or_the_node_ends(
    journal: JournalSettings | None,
    inline: bool,
    owner: type,
    name: str,
    behind: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    with ThreadPoolExecutor(2) as executor, structlog.testing.capture_logs():
        node = Node(executor, journal, inline=inline)
        raised: list[MemoryError] = []
        monkeypatch.setattr(owner, name, fails_once(getattr(owner, name), raised, behind=behind))
        for txid in (0, 1):
            node.append(txid)
            await node.ends_or(lambda txid=txid: node.answered(txid))  # type: ignore[misc]
        if not node.defects:
            async with asyncio.timeout(5):
                await node.pool.drained()
    assert set(map(id, node.defects)) <= set(map(id, raised))
    assert raised
    node.assert_holds_what_it_acknowledged()
