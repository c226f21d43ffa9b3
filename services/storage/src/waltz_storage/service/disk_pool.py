"""Queues of the partitions and the pool of disk threads that works them off.

The loop puts requests into a partition's queue and starts its job at the end of each batch of arrivals; a job
takes everything queued (bounded in count and bytes) to a disk thread; when it is done, one
`call_soon_threadsafe` brings all replies back. While a job runs, the next batch forms on its own. One append
of one record that is alone may run on the loop instead, while the disk is fast: see `inline`. Without a
journal so does what memory answers, and jobs that open a session pass those that do not (`job_order`).

Invariants:

* At most one job per partition at a time; so the engine's partition has one user at a time.
* A queue is bounded in count and bytes, and all queues together in bytes: on a disk that hangs every
  one of them fills. A request that finds no room is answered with Failure at once and holds up nobody; one
  that has raised the fence is always queued (without its records), because its reply has to wait until the
  fence is durable.
* A step between a request and its reply is taken whole, or the node ends (`vital`).
* The executor is injected: one that runs inline makes the whole node deterministic.

With a journal (`engine.journal`) the jobs of all partitions that have something to do run one after the other
on one thread, as one *batch*, and no reply of it leaves before its one commit. What arrives meanwhile is the
next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from time import perf_counter
from typing import NamedTuple, TypeAlias, TypeVar

import structlog

from waltz_protocol.aio.unsent import UnsentReplies
from waltz_storage.engine.errors import StorageError
from waltz_storage.engine.partition import Partition
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.fence import Fence
from waltz_storage.service.inline import InlineGate, InlineLimits, is_lone
from waltz_storage.service.job_order import JobLine, needs_no_disk, opens_session
from waltz_storage.service.jobs import Job, JobResult, ReadLimits
from waltz_storage.service.metrics import StorageMetrics
from waltz_storage.service.requests import APPENDS, COUNTERS, READ_KINDS, Call, ReplyChannel, Request
from waltz_storage.service.vital import leave_to_the_loop, vital

T = TypeVar("T")
STALL_SECONDS = 1.0
"""Disk threads that have finished nothing for so long hang: memory answers nothing then."""
log = structlog.get_logger(__name__)


class QueueLimits(NamedTuple):
    """Bounds per partition, and one over all of them."""

    max_requests: int = 4096
    max_bytes: int = 32 << 20  # waiting and running
    job_requests: int = 1024
    job_bytes: int = 4 << 20
    total_bytes: int = 512 << 20  # waiting and running, of all partitions


class PartitionQueue:
    """What waits for one partition. Owner: the loop."""

    def __init__(self, partition_id: int, pool: DiskPool) -> None:
        self.partition_id = partition_id
        self.fence = Fence()
        self.on_defect = pool.on_defect
        self._pool = pool
        self._items: deque[Request | Call] = deque()
        self._bytes = 0
        self._running: list[Request | Call] | None = None

    @property
    def size(self) -> int:
        """Requests waiting, not counting the running job."""
        return len(self._items)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return self._running is None and not self._items

    def offer(self, request: Request) -> None:
        """Take a request of an opened connection: it raises the fence, then waits or is refused for want of
        room."""
        raised = self._pool.raises_fence(self, request.session_id)
        problem = self._lack_of_room(request.size_bytes)
        if problem is not None and not raised:
            request.channel.send(request.failure(problem))
            return
        if problem is not None:
            request.batch, request.size_bytes = None, 0
            request.problem = problem
        self._take(request)

    def _lack_of_room(self, size_bytes: int) -> str | None:
        pool, limits = self._pool, self._pool.queue_limits
        if len(self._items) >= limits.max_requests or (
            self._bytes + size_bytes > limits.max_bytes and self._bytes > 0
        ):
            return "the queue of the partition is full"
        # A request of any size is taken where nothing else waits.
        if pool.queued_bytes + size_bytes > limits.total_bytes and pool.queued_bytes > 0:
            return "the queues of this node are full"
        return None

    def call(self, call: Call) -> None:
        """Queue a call of the admin port and start. Never refused: admin requests are few and counted
        elsewhere."""
        self._take(call)
        self.kick()

    def _take(self, item: Request | Call) -> None:
        self._items.append(item)
        self._bytes += item.size_bytes
        self._pool.queued_bytes += item.size_bytes
        if self._running is None and len(self._items) == 1:
            self._pool.became_busy(self)

    @vital
    def kick(self, *, alone: bool = False) -> None:
        """Start a job unless one is running. `alone`: nothing else arrived, so it may run on the loop (see
        `inline`)."""
        if self._running is not None or not self._items:
            return
        limits = self._pool.queue_limits
        items: list[Request | Call] = []
        size = 0
        while self._items and len(items) < limits.job_requests:
            size += self._items[0].size_bytes
            if items and size > limits.job_bytes:
                break
            item = self._items.popleft()
            if item.kind in READ_KINDS and isinstance(item, Request) and self._takes_nothing(item):
                item.problem = "too many replies are waiting for this connection to take them"
            items.append(item)
        self._running = items
        self._pool.submit(self, items, alone=alone)

    def _takes_nothing(self, request: Request) -> bool:
        """The peer asks and does not read: its replies would fill the memory."""
        return self._pool.unsent.beyond_share(request.channel)

    def done(self, result: JobResult) -> None:
        """The job has ended; its replies are the pool's to send."""
        items, self._running = self._running or [], None
        if result.left:
            del items[len(items) - len(result.left) :]
            self._items.extendleft(reversed(result.left))
        pool = self._pool
        for item in items:
            self._bytes -= item.size_bytes
            pool.queued_bytes -= item.size_bytes
        pool.count(self.partition_id, items)

    def proceed(self, result: JobResult) -> None:
        """The replies of the job that has ended are sent: start the next."""
        if self._items:
            self.kick()
        for call, value, error in result.calls:
            call.done(value, error)
        if self._running is None and not self._items:
            self._pool.became_idle(self)


QueuedJob: TypeAlias = tuple[PartitionQueue, Job]
"""A job that waits for a disk thread, or for the next batch."""


class DiskPool:
    """All queues of a node and the threads behind them."""

    def __init__(
        self,
        manager: StorageManager,
        executor: Executor,
        metrics: StorageMetrics,
        queue_limits: QueueLimits = QueueLimits(),  # noqa: B008 - immutable
        read_limits: ReadLimits = ReadLimits(),  # noqa: B008 - immutable
        inline_limits: InlineLimits | None = None,
        on_defect: Callable[[Exception], None] = leave_to_the_loop,
    ) -> None:
        """Without `inline_limits` every job goes to the executor. `on_defect` is called on the loop or on a
        disk thread."""
        self.manager = manager
        self.on_defect = on_defect
        self.queue_limits = queue_limits
        self.queued_bytes = 0  # of all queues, waiting and running; they count it
        self.read_limits = read_limits
        self.unsent = UnsentReplies(read_limits.max_unsent_bytes)
        self._executor = executor
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._gate = InlineGate(inline_limits) if inline_limits is not None else None
        self._on_threads = 0  # jobs, or batches
        self._progress_at = self._loop.time()
        self._line: JobLine[tuple[QueuedJob, bool]] = JobLine()
        self._next_batch: list[QueuedJob] = []
        self._batch_due = False  # it begins at the end of this turn
        self._settling = False
        self._making = False  # `flush` has begun
        self._flush_due = False  # when the batch has ended
        self._queues: dict[int, PartitionQueue] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy: set[PartitionQueue] = set()  # those that are not idle
        self._published: dict[int, Partition] = {}
        for partition_id in manager.partitions:
            self.refresh(partition_id)

    def queue(self, partition_id: int) -> PartitionQueue:
        """The queue of a partition, made on first use."""
        queue = self._queues.get(partition_id)
        if queue is None:
            queue = self._queues[partition_id] = PartitionQueue(partition_id, self)
        return queue

    def raises_fence(self, queue: PartitionQueue, session_id: int) -> bool:
        """Note the session of a request; True when it raised the fence, which then has to be on the disk
        before the reply."""
        if session_id <= queue.fence.session_id:
            return False
        partition = self.manager.partitions.get(queue.partition_id)
        return partition is not None and queue.fence.arrive(session_id, partition.info.session_id)

    def refresh(self, partition_id: int) -> None:
        """After a change: the durable fence of an open partition counts, its metrics are there; of a closed
        one not.

        Requests may cross, so what counts is what is open now, not what one request did.
        """
        partition = self.manager.partitions.get(partition_id)
        if partition is self._published.get(partition_id):
            return
        if self._published.pop(partition_id, None) is not None:
            self._metrics.partition_closed(partition_id)
        if partition is not None:
            self._published[partition_id] = partition
            queue = self.queue(partition_id)
            queue.fence.restore(partition.durable_fence)
            self._metrics.partition_opened(partition, lambda: queue.size)

    def submit(self, queue: PartitionQueue, items: list[Request | Call], *, alone: bool = False) -> None:
        """Hand a job to a disk thread, or run it here and now."""
        job = Job(self.manager, queue.partition_id, queue.fence, items, self.read_limits)
        partition = self.manager.partitions.get(queue.partition_id)
        if needs_no_disk(partition, queue.fence.session_id, items) and not self._stalled:
            result = self._run(queue, job)
            if queue.size:  # not from the end of one job to the next: others have their turn
                self._loop.call_soon(self._finished, ((queue, result),))
            else:
                self._finished(((queue, result),))
            return
        gate, journaling = self._gate, self.manager.journaling
        # With a journal what shares a batch with others is not measured.
        lone = gate is not None and (alone or not journaling) and is_lone(items, gate.limits)
        free = not self._on_threads and not self._next_batch
        if gate is not None and alone and lone and free and gate.open:
            started = perf_counter()
            [(_, result)] = self._run_batch([(queue, job)])
            gate.took(perf_counter() - started, inline=True)
            self._finished(((queue, result),))
            self._settle_when_due()
            return
        if journaling:
            self._next_batch.append((queue, job))
            if not self._batch_due:
                self._schedule_batch()
            return
        self._line.add(((queue, job), lone), first=opens_session(items))
        self._to_thread(self._run_next_on_thread)

    @property
    def _stalled(self) -> bool:
        """Whether no disk thread has finished anything for a while: who asks whether the node is able has to
        wait as long as who writes."""
        return bool(self._on_threads) and self._loop.time() - self._progress_at > STALL_SECONDS

    def _to_thread(self, work: Callable[..., None], *arguments: object) -> None:
        if not self._on_threads:
            self._progress_at = self._loop.time()
        self._on_threads += 1
        self._executor.submit(work, *arguments)

    def _back_from_thread(self) -> None:
        self._on_threads -= 1
        self._progress_at = self._loop.time()

    def _schedule_batch(self) -> None:
        """Begin a batch at the end of this turn, with everything that other connections still bring."""
        if self._next_batch and not self._batch_due and not self._on_threads:
            self._batch_due = True
            self._loop.call_soon(self._begin_batch)

    @vital
    def _begin_batch(self) -> None:
        self._batch_due = False
        batch, self._next_batch = self._next_batch, []
        if not batch or self._on_threads:
            self._next_batch = batch
            return
        self._to_thread(self._run_batch_on_thread, batch)

    @vital
    def _run_batch_on_thread(self, batch: list[QueuedJob]) -> None:
        started = perf_counter()
        results = self._run_batch(batch)
        lone = self._gate is not None and len(batch) == 1 and is_lone(batch[0][1].items, self._gate.limits)
        seconds = perf_counter() - started if lone else -1.0
        self._loop.call_soon_threadsafe(self._batch_done, results, seconds)

    @vital
    def _batch_done(self, results: list[tuple[PartitionQueue, JobResult]], seconds: float) -> None:
        self._back_from_thread()
        if self._flush_due:  # before a queue runs empty: the node may wait for that to end
            self.flush()
        if self._gate is not None and seconds >= 0:
            self._gate.took(seconds, inline=False)
        self._finished(results)
        self._schedule_batch()
        self._settle_when_due()

    @vital
    def _finished(self, results: Sequence[tuple[PartitionQueue, JobResult]]) -> None:
        """Send the replies of jobs, all of a connection at once, before a queue starts its next job."""
        replies: dict[ReplyChannel, list[bytes]] = {}
        for queue, result in results:
            queue.done(result)
            for channel, parts in result.replies:
                if channel in replies:
                    replies[channel] += parts
                else:
                    replies[channel] = list(parts)
        for channel, frames in replies.items():
            channel.send(*frames)
            self.unsent.sent(channel)
        for queue, result in results:
            queue.proceed(result)

    def _run_batch(self, batch: list[QueuedJob]) -> list[tuple[PartitionQueue, JobResult]]:
        """Run jobs one after the other and make them durable; if that fails, nothing of them is shown."""
        partition_ids = [queue.partition_id for queue, _ in batch]
        self.manager.room.batch_begins()
        results = [(queue, self._run(queue, job)) for queue, job in batch]
        self.manager.room.batch_ends()
        try:
            self.manager.commit(partition_ids)
        except Exception as error:
            if not isinstance(error, StorageError):
                log.error("a commit of the journal failed", exc_info=error)
                error = StorageError(f"internal error: {type(error).__name__}: {error}")
                self._stop_partitions(partition_ids, str(error))
            for partition_id in partition_ids:
                self.manager.hide(partition_id)
            return [(queue, _failed(job.items, error)) for queue, job in batch]
        return results

    def _stop_partitions(self, partition_ids: Iterable[int], text: str) -> None:
        """Nothing is known about them any longer."""
        for partition_id in partition_ids:
            partition = self.manager.partitions.get(partition_id)
            if partition is not None:
                partition.failed = partition.failed or text

    @vital
    def flush(self) -> None:
        """With a journal: write into the files what is in the journal only, when no batch runs any longer."""
        self._flush_due = bool(self._on_threads) and not self._making
        if self.manager.unmade and not self._on_threads:
            self._making = True
            self._idle.clear()
            self._to_thread(self._make_on_thread)

    @vital
    def _make_on_thread(self) -> None:
        try:
            self.manager.make()
        except StorageError as error:
            log.error("the journal failed", reason=str(error))
        finally:
            self._loop.call_soon_threadsafe(self._made)

    @vital
    def _made(self) -> None:
        self._making = False
        self._batch_done([], -1.0)
        if not self._busy and not self._making:
            self._idle.set()

    def _settle_when_due(self) -> None:
        if not self._settling and self.manager.settle_due:
            self._settling = True
            self._executor.submit(self._settle)

    @vital
    def _settle(self) -> None:
        settled = False
        try:
            settled = self.manager.settle()
        finally:
            self._loop.call_soon_threadsafe(self._settled, settled)

    @vital
    def _settled(self, settled: bool) -> None:
        self._settling = False
        if settled:  # else after the next batch
            self._settle_when_due()

    @vital
    def _run_next_on_thread(self) -> None:
        (queue, job), lone = self._line.take()
        started = perf_counter()
        result = self._run(queue, job)
        seconds = perf_counter() - started if lone else -1.0
        self._loop.call_soon_threadsafe(self._thread_done, queue, result, seconds)

    @vital
    def _thread_done(self, queue: PartitionQueue, result: JobResult, seconds: float) -> None:
        self._back_from_thread()
        if self._gate is not None and seconds >= 0:
            self._gate.took(seconds, inline=False)
        self._finished(((queue, result),))

    def _run(self, queue: PartitionQueue, job: Job) -> JobResult:
        try:
            return job.run()
        except BaseException as error:
            log.error("a job of the partition failed", partition=queue.partition_id, exc_info=error)
            return self._broken(queue.partition_id, job.items, error)

    def _broken(self, partition_id: int, items: list[Request | Call], error: BaseException) -> JobResult:
        """An error nobody foresaw."""
        text = f"internal error: {type(error).__name__}: {error}"
        self._stop_partitions([partition_id], text)
        return _failed(items, StorageError(text))

    def count(self, partition_id: int, items: list[Request | Call]) -> None:
        """Count finished requests in the metrics of the partition."""
        metrics = self._metrics.partitions.get(partition_id)
        if metrics is None:
            return
        now, appends, size_bytes = self._loop.time(), 0, 0
        for item in items:
            if isinstance(item, Call):
                continue
            if item.kind in APPENDS:
                appends += 1
                size_bytes += item.size_bytes
                metrics.append_latency.update(now - item.arrived_seconds)
                if item.damaged:
                    metrics.damaged_appends.inc()
            else:
                metrics.counters[COUNTERS[item.kind]].inc()
        if appends:
            metrics.append.mark(appends)
            metrics.append_bytes.mark(size_bytes)

    async def run(self, partition_id: int, action: Callable[[StorageManager], T]) -> T:
        """Run an admin action as the partition's job. Cancellation does not stop it, only the waiting."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(value: object, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)  # type: ignore[arg-type]

        self.queue(partition_id).call(Call(action, done))
        return await future

    def became_busy(self, queue: PartitionQueue) -> None:
        """Something waits in a queue."""
        self._busy.add(queue)
        self._idle.clear()

    def became_idle(self, queue: PartitionQueue) -> None:
        """A queue ran empty."""
        self._busy.discard(queue)
        if not self._busy and not self._making:
            self._idle.set()

    async def drained(self) -> None:
        """Wait until nothing waits and nothing runs."""
        while not self._idle.is_set():  # it may have been cleared again in the turn that set it
            await self._idle.wait()


def _failed(items: list[Request | Call], error: StorageError) -> JobResult:
    """The same answer for all."""
    text = str(error)
    replies = [(item.channel, (item.failure(text),)) for item in items if isinstance(item, Request)]
    calls = [(item, None, error) for item in items if isinstance(item, Call)]
    return JobResult(list(replies), list(calls), [])
