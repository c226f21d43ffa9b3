"""The partitions this server owns, and the connections that want something of them.

Owner of the set: the event loop; `adopt` is the only writer and is called with what the cluster manager says
(ZooKeeper layout, adoption). Each owned partition has one supervisor task that runs one `Partition` object
after another: when one ends on its own (a fault, a store that gave up) a new one starts over with a recovery
(weakness 13.12).

What the protocol lacks, and how clients learn it anyway
* A mount for a partition that is not here is held for `MOUNT_HOLD_SECONDS` before NOT_READY: during a
  take-over clients often arrive before the assignment does, and a refused client sleeps half a second. Data
  requests are held for `READ_HOLD_SECONDS`: a client that is refused often sleeps up to five.
* A client notices a lost partition only by discovery. When a partition comes back to this server before the
  client has seen it go, the client believes itself mounted on an object that no longer exists and would wait
  forever. So a new partition object sends every connection that was mounted on its predecessor NOT_READY for
  that mount; 0.13.2 clients answer with a new mount, or ignore it if they have left in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from waltz_protocol.aio.peer_log import PeerLog
from waltz_protocol.aio.turns import QUEUED, Turns
from waltz_protocol.backoff import Backoff
from waltz_protocol.frames.data import data_failure
from waltz_protocol.frames.replies import mount_response
from waltz_protocol.messages.client import MountState
from waltz_server.partition.client import Client
from waltz_server.partition.data_reads import NOT_READY_TEXT
from waltz_server.partition.hand_over import LockHandOver
from waltz_server.partition.held_reads import HeldReads
from waltz_server.partition.owned_partition import Partition, PartitionError
from waltz_server.partition.settlement import OnSettled
from waltz_server.surrenders import Surrenders

log = structlog.get_logger(__name__)

MOUNT_HOLD_SECONDS = 0.4
READ_HOLD_SECONDS = 2.0
MAX_HELD_MOUNTS = 10_000
FIRST_RESTART_SECONDS = 0.2
MAX_RESTART_SECONDS = 20.0
DRAIN_POLL_SECONDS = 0.02
FORGET_UNITS = 20
"""Of work (see `aio.turns`) to forget a connection, and one more for each 8 partitions or 16 held mounts that
are looked at."""

OPEN_UNITS = 400
"""To make the object of a partition and begin its recovery."""

MakePartition = Callable[[int, int], Partition]


class AsksOldOwners(Protocol):
    """See `peers.old_owners`."""

    def prepare(self, address: str) -> None:
        """Something will be asked there soon."""

    async def ask(self, address: str, partition_id: int, generation: int) -> LockHandOver | None:
        """The lock table for the owner of this generation; soon, and never an error."""


class MountedClient(Client, Protocol):
    """A connection as the registry sees it."""

    def unmount_stale(self, partition: Partition) -> None:
        """Answer NOT_READY for a mount this connection has on an earlier object of the same partition."""

    @property
    def peer(self) -> str:
        """Its address."""

    @property
    def unsent_bytes(self) -> int:
        """What waits for it to read."""

    def mounted(self) -> Iterable[int]:
        """Partitions of which it was sent READY last."""


@dataclass(slots=True, eq=False)
class _Owned:
    partition_id: int
    generation: int
    partition: Partition | None = None
    """The last object; `PartitionRegistry.partitions` has it while it is alive."""
    reason: str = "starting"
    old_owner: str | None = None
    """Address of the server that had it before, by the assignment."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _HeldMount:
    client: Client
    req_id: bytes
    generation: int
    client_high_water_mark: int
    epoch: int = 0
    timer: asyncio.TimerHandle | None = None


class PartitionRegistry:
    """See the module. Use: `async with registry:` around everything that may call `adopt`."""

    def __init__(
        self, num_partitions: int, make_partition: MakePartition, turns: Turns | None = None
    ) -> None:
        self._turns = turns if turns is not None else Turns()
        self._gone: deque[MountedClient] = deque()
        """Connections that have gone and are not forgotten yet."""
        self.num_partitions = num_partitions
        self.partitions: dict[int, Partition] = {}
        self.owners: Mapping[int, str] = {}
        """Partition id to the address of its owner, by the assignment; the server writes it."""
        """Partition id -> live object: what connections route by."""
        self.peer_log = PeerLog(logging.getLogger(__name__), clock=lambda: asyncio.get_running_loop().time())
        self.old_owners: AsksOldOwners | None = None
        self.address = ""
        """Our own; the server writes both."""
        self._surrenders = Surrenders()
        self._make_partition = make_partition
        self._owned: dict[int, _Owned] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._openings = _Openings(self._open, self._turns)
        self._connections: dict[MountedClient, None] = {}
        self._held: dict[tuple[int, Client], _HeldMount] = {}
        self._held_reads: HeldReads | None = None
        self._tasks = asyncio.TaskGroup()
        self._leaving = False

    async def __aenter__(self) -> PartitionRegistry:
        self._held_reads = HeldReads(READ_HOLD_SECONDS, asyncio.get_running_loop())
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()
        await self._tasks.__aexit__(None, None, None)

    def address_of(self, partition_id: int) -> str | None:
        """Who owns a partition that is not here, by the assignment; None when nobody is known to."""
        return self.owners.get(partition_id)

    # -- the assignment ------------------------------------------------------------------------------------

    def adopt(self, wanted: Mapping[int, int], *, settle: bool = False) -> None:
        """Own exactly these partitions (id -> generation) from now on; ignored once the server is leaving.

        Partitions that are not named are closed before this returns (safety D8: the ZooKeeper session is
        over); with `settle` (others own them now, and the session lives) when what is in flight is decided,
        for the next owner. New ones are opened in turns, as who gains a thousand has to answer its peers
        meanwhile.
        """
        if self._leaving:
            return
        problem = self._release_all([each for each in self._owned if each not in wanted], settle)
        if not settle:
            self._surrenders.close()
        for partition_id, generation in wanted.items():
            owned = self._owned.get(partition_id)
            if owned is None:
                owned = self._owned[partition_id] = _Owned(partition_id, generation)
                old_owner = self.owners.get(partition_id)
                owned.old_owner = old_owner if old_owner != self.address else None
                self._openings.add(owned)
            elif generation > owned.generation:
                owned.generation = generation
                if owned.partition is not None:
                    owned.partition.set_generation(generation)
        if problem is not None:
            raise problem

    def _open(self, owned: _Owned) -> None:
        """Called by `_openings`; the partition may have left meanwhile."""
        if owned.released.is_set() or self._leaving:
            return
        partition_id = owned.partition_id
        log.info("partition gained", partition=partition_id, generation=owned.generation)
        self._surrenders.drop(partition_id)  # two objects would answer for one partition
        if (partition := self._start(owned)) is not None:
            self._expect_hand_over(owned, partition)
        previous = self._ending.pop(partition_id, None)
        owned.task = self._tasks.create_task(
            self._supervise(owned, previous), name=f"partition-{partition_id}"
        )

    def _release_all(self, partition_ids: list[int], settle: bool = False) -> Exception | None:
        """The last error; one that cannot be closed does not keep the others open."""
        problem = None
        for partition_id in partition_ids:
            try:
                self._release(partition_id, settle)
            except Exception as error:
                log.exception("a partition could not be closed in order", partition=partition_id)
                problem = error
        return problem

    def _release(self, partition_id: int, settle: bool) -> None:
        log.info("partition lost", partition=partition_id)
        owned = self._owned.pop(partition_id)
        owned.released.set()
        self.partitions.pop(partition_id, None)
        if owned.task is not None:
            self._ending[partition_id] = owned.task
            owned.task.add_done_callback(lambda task: self._ended(partition_id, task))
        partition = owned.partition
        if partition is not None:
            try:
                if settle and not partition.closed:
                    self._surrenders.settle(partition_id, partition, partition.close)
                else:
                    partition.close()
            except Exception:
                if owned.task is not None:
                    owned.task.cancel()  # its store ends with it
                raise
            partition.remove_metrics()

    def _ended(self, partition_id: int, task: asyncio.Task[None]) -> None:
        if self._ending.get(partition_id) is task:
            del self._ending[partition_id]

    def _expect_hand_over(self, owned: _Owned, partition: Partition) -> None:
        """What the old owner gives arrives between the session id and the fence: it serves until then."""
        address, old_owners = owned.old_owner, self.old_owners
        if address is None or old_owners is None:
            return

        async def take_over() -> None:
            table = await old_owners.ask(address, owned.partition_id, owned.generation)
            partition.settlement.take_over(table)

        old_owners.prepare(address)
        partition.store.before_fence = take_over

    def _start(self, owned: _Owned) -> Partition | None:
        """A new object, open to clients at once: mounts wait inside it for the recovery. None: there is none
        yet, and the owner task tries again."""
        try:
            return self._started(owned)
        except Exception as error:
            self._failed(owned, error)
            partition = self.partitions.pop(owned.partition_id, None)
            if partition is not None:
                partition.close()
            return None

    @staticmethod
    def _failed(owned: _Owned, error: Exception) -> None:
        owned.reason = f"restarting after: {_first_line(error)}"
        log.error("partition failed", partition=owned.partition_id, exc_info=error)

    def _started(self, owned: _Owned) -> Partition:
        partition = self._make_partition(owned.partition_id, owned.generation)
        owned.partition = self.partitions[owned.partition_id] = partition
        for connection in self._connections:
            connection.unmount_stale(partition)
        for key in [key for key in self._held if key[0] == owned.partition_id]:
            held = self._take_held(key)
            mark, epoch = held.client_high_water_mark, held.epoch
            partition.mount(held.client, held.req_id, held.generation, mark, epoch)
        if self._held_reads is not None:
            for read in self._held_reads.take(owned.partition_id):
                partition.transaction_data(read.client, read.req_id, read.transaction_id)
        return partition

    async def _supervise(self, owned: _Owned, previous: asyncio.Task[None] | None) -> None:
        """Owner task of one partition until it is released."""
        if previous is not None:
            await asyncio.wait(
                [previous]
            )  # two stores of one partition in one process would fence each other
        backoff = Backoff(FIRST_RESTART_SECONDS, MAX_RESTART_SECONDS)
        partition = self.partitions.get(owned.partition_id)
        while not owned.released.is_set():
            started = asyncio.get_running_loop().time()
            try:
                if partition is not None:
                    await partition.run()
            except PartitionError as error:
                owned.reason = f"restarting: {error}"
                log.error("partition ended", partition=owned.partition_id, reason=str(error))
            except Exception as error:
                self._failed(owned, error)
            if owned.released.is_set() or self._leaving:
                break
            self.partitions.pop(owned.partition_id, None)
            if asyncio.get_running_loop().time() - started > MAX_RESTART_SECONDS:
                backoff.reset()
            try:
                async with asyncio.timeout(backoff.next_seconds()):
                    await owned.released.wait()
            except TimeoutError:
                if owned.released.is_set() or self._leaving:
                    break  # both in one turn: the process was suspended
                partition = self._start(owned)

    def hand_over(self, partition_id: int, generation: int, answer: OnSettled) -> None:
        """The next owner, of this generation, asks for the lock table (see `Surrenders`)."""
        owned = self.partitions.get(partition_id)
        self._surrenders.ask(partition_id, generation, owned, self._leaving, answer)

    # -- connections ---------------------------------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections(self) -> list[MountedClient]:
        """Those that are open."""
        return list(self._connections)

    def connection_opened(self, connection: MountedClient) -> None:
        self._connections[connection] = None

    def connection_closed(self, connection: MountedClient) -> None:
        """Nothing of this connection stays behind but its queued appends; when very many go at once, not in
        one turn."""
        self._connections.pop(connection, None)
        self._gone.append(connection)
        if len(self._gone) == 1:  # no others are in line
            if self._turns.free_for_queued:
                self._turns.spend(self.work(self._turns.left))
            else:
                self._turns.join(self, QUEUED)

    def work(self, units: int) -> int:
        """Called by `turns`: forget connections."""
        spent = 0
        try:
            while self._gone and spent < units:
                spent += self._forget(self._gone.popleft())
        finally:  # those behind one that could not be forgotten would wait for this forever
            if self._gone:
                self._turns.join(self, QUEUED)
        return spent

    def _forget(self, connection: MountedClient) -> int:
        units = FORGET_UNITS + (len(self.partitions) >> 3) + (len(self._held) >> 4)
        for key in [key for key in self._held if key[1] is connection]:
            self._take_held(key)
        if self._held_reads is not None:
            self._held_reads.forget(connection)
        for partition in list(self.partitions.values()):
            partition.client_closed(connection)
        return units

    def hold_mount(
        self,
        client: Client,
        partition_id: int,
        req_id: bytes,
        generation: int,
        client_high_water_mark: int,
        epoch: int = 0,
    ) -> None:
        """A mount for a partition that is not here (yet): NOT_READY, a little later."""
        key = (partition_id, client)
        if key in self._held:
            self._refuse(self._take_held(key))
        held = _HeldMount(client, req_id, generation, client_high_water_mark, epoch)
        known = 0 <= partition_id < self.num_partitions
        if self._leaving or not known or len(self._held) >= MAX_HELD_MOUNTS:
            self._refuse(held)
            return
        self._held[key] = held
        loop = asyncio.get_running_loop()
        held.timer = loop.call_later(MOUNT_HOLD_SECONDS, lambda: self._refuse(self._take_held(key)))

    def forget_mount(self, client: Client, partition_id: int) -> None:
        """The client takes no part any longer: no mount of its is held."""
        if (partition_id, client) in self._held:
            self._take_held((partition_id, client))

    def hold_read(self, client: Client, partition_id: int, req_id: bytes, transaction_id: int) -> None:
        """A data request for a partition that is not here (yet): a failure text, a little later."""
        known = 0 <= partition_id < self.num_partitions
        if self._leaving or not known or self._held_reads is None:
            client.send(data_failure(client.version, req_id, transaction_id, NOT_READY_TEXT))
        else:
            self._held_reads.hold(client, partition_id, req_id, transaction_id)

    def _take_held(self, key: tuple[int, Client]) -> _HeldMount:
        held = self._held.pop(key)
        if held.timer is not None:
            held.timer.cancel()
        return held

    def _refuse(self, held: _HeldMount) -> None:
        held.client.send(mount_response(held.client.version, held.req_id, MountState.NOT_READY))

    # -- reports -------------------------------------------------------------------------------------------

    def owned_ids(self) -> list[int]:
        """Ids of the partitions assigned to this server, ascending."""
        return sorted(self._owned)

    def healthy(self) -> dict[int, bool]:
        """Partition id -> healthy; a tenth of the work of `health`."""
        return {
            partition_id: owned.partition is not None and owned.partition.healthy
            for partition_id, owned in sorted(self._owned.items())
        }

    def health(self) -> dict[int, tuple[bool, str]]:
        """Partition id -> (healthy, reason)."""
        return {partition_id: self._health_of(owned) for partition_id, owned in sorted(self._owned.items())}

    def why_unhealthy(self, partition_id: int) -> str:
        """The reason in `health`; empty for a partition that is healthy, or not of this server."""
        owned = self._owned.get(partition_id)
        return "" if owned is None else self._health_of(owned)[1]

    def _health_of(self, owned: _Owned) -> tuple[bool, str]:
        partition = owned.partition
        if partition is None or owned.partition_id not in self.partitions:
            return False, owned.reason
        return partition.healthy, partition.reason

    # -- leaving -------------------------------------------------------------------------------------------

    def begin_leaving(self) -> None:
        """From now on the set only shrinks: assignments are ignored, new mounts refused."""
        self._leaving = True

    async def drain(self, timeout_seconds: float, *, wait_for_successor: bool) -> None:
        """Serve on until every partition has been taken over (its session is lost to the new owner), or, when
        nobody takes over, until nothing is undecided; at most `timeout_seconds`. Serving on is what keeps the
        pause short."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        for partition in self.partitions.values():
            partition.leave_on_session_loss()
        while loop.time() < deadline:
            busy = [
                p for p in self.partitions.values() if not p.closed and (wait_for_successor or p.undecided)
            ]
            if not busy:
                return
            await asyncio.sleep(DRAIN_POLL_SECONDS)  # a poll: taking over has no event on this side

    def close(self) -> None:
        """Close all partitions. Idempotent."""
        self._leaving = True
        self._surrenders.close()
        self._release_all(list(self._owned))
        for key in list(self._held):
            self._refuse(self._take_held(key))
        if self._held_reads is not None:
            self._held_reads.close()


class _Openings:
    """Partitions that are to be opened, in the order in which they were gained: at once as far as the turn of
    the loop has room, the others in line."""

    def __init__(self, open_one: Callable[[_Owned], None], turns: Turns) -> None:
        self._open_one = open_one
        self._turns = turns
        self._waiting: deque[_Owned] = deque()

    def add(self, owned: _Owned) -> None:
        """Open it now or later."""
        if self._waiting:
            self._waiting.append(owned)
        elif self._turns.free_for_queued:
            self._turns.spend(OPEN_UNITS)
            self._open_one(owned)
        else:
            self._waiting.append(owned)
            self._turns.join(self, QUEUED)

    def work(self, units: int) -> int:
        """Called by `turns`."""
        spent = 0
        try:
            while self._waiting and spent < units:
                spent += OPEN_UNITS
                self._open_one(self._waiting.popleft())
        finally:
            if self._waiting:
                self._turns.join(self, QUEUED)
        return spent


def _first_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (str(error) or type(error).__name__).splitlines()[0]
