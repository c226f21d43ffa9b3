"""The cluster manager: what servers and clients run to find each other (docs/zookeeper-layout.md).

A server registers a descriptor; the server with the lowest id (the coordinator) writes the assignment of
partitions to servers; everybody adopts an assignment that was made for the present members. A client only
listens.

Owner of everything here: one task per manager, on the loop. Writes to ZooKeeper happen under one lock, and
every attempt gives the lock back before it pauses, so nothing waits behind an endless repetition. Invariants
  1. An assignment is written only by the manager of the lowest server id (or for a change of preferences),
     with the version of the data it was computed from.
  2. An assignment is adopted only when its child version is that of the members, and only while the session
     whose reads produced it is still the present one.
  3. No partitions are served after the session may have ended (`lease`): at LOST at once, else when
     `last_contact + session timeout` has passed on the own clock.

What the layout does not let us mend: the assignment of a cluster without servers stays in the znode, because
it holds the generations, which must never go back; the number of partitions cannot change, it is part of
every storage node's control file; a grace period for departures would be a time without service, so a rolling
restart moves partitions twice. A server must open its port before it registers: that order is the caller's.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from waltz_cluster import assignment as policy
from waltz_cluster.cluster_params import patiently, read_cluster_params
from waltz_cluster.errors import (
    ClusterError,
    ConnectError,
    ConnectionLostError,
    ManagerClosedError,
    NoNodeError,
    NotAdoptedError,
    SerializationError,
    SessionLostError,
    StoreError,
    VersionConflictError,
)
from waltz_cluster.eviction import MembersListener, members_without, write_eviction
from waltz_cluster.ids import take_id, take_ids
from waltz_cluster.lease import SessionLease
from waltz_cluster.membership import MembershipReader, Snapshot
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.producers import ZooKeeperProducers
from waltz_cluster.registration import (
    OnPartitions,
    ServerRegistration,
    check_preferred,
    load_preferred,
    store_preferred,
)
from waltz_cluster.serializers import ClusterParams, PartitionAssignment, PartitionMetadata, ServerDescriptor
from waltz_cluster.store import SessionEvent, SessionState, ZooKeeperStore
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.backoff import AROUND, Backoff
from waltz_protocol.types import Endpoint, Generation, PartitionId

_log = logging.getLogger(__name__)

Endpoints = dict[Endpoint, dict[PartitionId, Generation]]
EndpointsListener = Callable[[Endpoints], None]


class Picture(NamedTuple):
    """What was adopted: its number (`membership.Snapshot.number`), the endpoints, and whether the session
    that it came from is certain to be alive."""

    number: int
    endpoints: Endpoints
    in_contact: bool


PictureListener = Callable[[Picture], None]

_INITIAL_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 2.0


class ClusterManager:
    """`async with ClusterManager(store, root, rng=…) as manager`. See the module."""

    cluster_params: ClusterParams

    def __init__(self, store: ZooKeeperStore, root: str, *, rng: random.Random) -> None:
        self._store = store
        self._paths = ClusterPaths(root)
        self._rng = rng
        self._wake = asyncio.Event()
        self._last_failure = ""
        self._lock = asyncio.Lock()
        self._preferences_lock = asyncio.Lock()
        self._reader = MembershipReader(store, self._paths, self._wake.set)
        self._backoff = Backoff(_INITIAL_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, rng, spread=AROUND)
        self._registrations: dict[int, ServerRegistration] = {}
        self._leaving: set[ServerRegistration] = set()
        self._listeners: list[EndpointsListener] = []
        self._members_listener: MembersListener | None = None
        self._picture_listener: PictureListener | None = None
        self._picture: Picture | None = None
        self._adopted: Endpoints | None = None
        self._task: asyncio.Task[None] | None = None
        self._remove_session_listener: Callable[[], None] | None = None
        self._lease: SessionLease | None = None

    # -- life

    async def __aenter__(self) -> Self:
        self.cluster_params = await patiently(lambda: read_cluster_params(self._store, self._paths.root))
        self._lease = SessionLease(self._store, self._fence)
        self._remove_session_listener = self._store.add_session_listener(self._session_changed)
        self._lease.start()
        try:
            async with self._lock:
                await self._evaluate()
        except (StoreError, SerializationError) as error:
            _log.warning("the servers of %s cannot be read yet: %s", self._paths.root, error)
        except BaseException:
            self._stop()
            raise
        self._wake.set()
        self._task = spawn(self._run(), "cluster-manager")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for registration in tuple(self._registrations.values()):
                await self.leave(registration, 2.0)
        finally:
            self._stop()
            task, self._task = self._task, None
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _stop(self) -> None:
        if self._remove_session_listener is not None:
            self._remove_session_listener()
            self._remove_session_listener = None
        if self._lease is not None:
            self._lease.close()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                async with self._lock:
                    await self._evaluate()
                self._backoff.reset()
                self._last_failure = ""
            except Exception as error:  # one that nobody foresaw too: without this task nobody follows
                # not connected: the session event wakes us; anything else is tried again, slower and slower
                text, why = "the assignment of %s is evaluated again after: %s", str(error) or repr(error)
                known = isinstance(error, VersionConflictError) or why == self._last_failure
                self._last_failure = why
                level = logging.DEBUG if known else logging.WARNING  # one line per problem, not one per try
                trace = not isinstance(error, ClusterError)
                _log.log(level, text, self._paths.root, why, exc_info=trace)
                await self._pause()
                self._wake.set()

    async def _pause(self) -> None:
        pause = self._backoff.next_seconds()
        if self._store.state is SessionState.CONNECTED:
            await asyncio.sleep(pause)
            return
        try:
            async with asyncio.timeout(max(pause, 0.5)):  # `wait_for` can swallow a cancellation
                await self._wake.wait()
        except TimeoutError:
            pass

    def _session_changed(self, event: SessionEvent) -> None:
        if self._lease is not None:
            self._lease.session_changed(event)
        if event.state is SessionState.CONNECTED:
            self._backoff.reset()
            self._wake.set()

    def _fence(self, reason: str) -> None:
        if self._registrations:
            _log.warning("all partitions are given up: %s", reason)
        for registration in (*self._registrations.values(), *self._leaving):
            registration.deliver({})
        if self._picture is not None:
            self._show(self._picture._replace(in_contact=False))
        self._wake.set()

    # -- evaluation, always under the lock

    async def _evaluate(self) -> None:
        epoch = self._store.epoch
        snapshot = await self._reader.snapshot()
        written = False
        for registration in tuple(self._registrations.values()):
            written = await registration.ensure_descriptor(snapshot) or written
        if written:
            snapshot = await self._reader.snapshot()
        if self._members_listener is not None:
            self._members_listener(snapshot.znodes)
        members = snapshot.members
        if snapshot.consistent or not members:
            self._adopt(snapshot, epoch)
        elif min(members) in self._registrations:
            await self._write_assignment(snapshot)
            self._wake.set()  # to adopt it

    async def _write_assignment(self, snapshot: Snapshot) -> bool:
        """Compute the assignment for these members and write it, unless it is the present one;
        VersionConflictError."""
        new = await self._assign(snapshot.cversion, snapshot, snapshot.members)
        if snapshot.consistent and policy.same_owners(new, snapshot.assignment):
            return False
        await self._store.set(self._paths.server_descriptors, new.to_bytes(), version=snapshot.version)
        _log.info(
            "assigned %d partitions to servers %s", new.num_partitions, ", ".join(map(str, new.servers))
        )
        return True

    async def _assign(
        self, cversion: int, snapshot: Snapshot, members: Mapping[int, ServerDescriptor]
    ) -> PartitionAssignment:
        old = await self._with_known_generations(snapshot.assignment)
        new = policy.assign(cversion, old, self.cluster_params.num_partitions, members, self._rng.shuffle)
        for partition_id, server_id in policy.at_their_last(new).items():
            _log.error(
                "partition %d stays with server %d, whether it is there or not: its generation in ZooKeeper is the "
                "last one there is, which no cluster comes to; compare it with a copy of the tree",
                partition_id,
                server_id,
                extra={"partition": partition_id},
            )
        return new

    async def _with_known_generations(self, old: PartitionAssignment) -> PartitionAssignment:
        """An assignment that lost partitions (an empty znode) must not restart their generations: the
        partitions' own metadata still know them, and a server with an older one could not start."""
        listed = {partition_id for given in old.servers.values() for partition_id, _ in given}
        if len(listed) >= self.cluster_params.num_partitions:
            return old
        floor: dict[PartitionId, Generation] = {}
        try:
            names, _ = await self._store.get_children(self._paths.partitions)
        except NoNodeError:
            return old
        for partition_id in (PartitionId(int(name)) for name in names if name.isdecimal()):
            if partition_id not in listed:
                try:
                    data, _ = await self._store.get(self._paths.partition(partition_id))
                    floor[partition_id] = Generation(PartitionMetadata.from_bytes(data).generation)
                except (NoNodeError, SerializationError) as error:
                    _log.error(
                        "the generation of partition %d is not known: %s",
                        partition_id,
                        error,
                        extra={"partition": partition_id},
                    )
        return policy.with_generations(old, floor)

    def _adopt(self, snapshot: Snapshot, epoch: int) -> None:
        if self._store.epoch != epoch or self._lease is None or not self._lease.renew():
            self._wake.set()
            raise ConnectionLostError("the ZooKeeper session changed while the servers were read")
        members = snapshot.members
        taken = True
        for server_id, registration in tuple(self._registrations.items()):
            mine = snapshot.assignment.partitions_of(server_id) if server_id in members else {}
            taken = registration.deliver(mine) and taken
        endpoints: Endpoints = {
            descriptor.endpoint: snapshot.assignment.partitions_of(server_id)
            for server_id, descriptor in sorted(members.items())
        }
        self._show(Picture(snapshot.number, endpoints, in_contact=True))
        if endpoints != self._adopted:
            self._adopted = endpoints
            for listener in tuple(self._listeners):
                self._tell(listener)
        if not taken:
            raise NotAdoptedError("a server failed to adopt its partitions")

    def _show(self, picture: Picture) -> None:
        if picture != self._picture:
            self._picture = picture
            if self._picture_listener is not None:
                self._picture_listener(picture)

    def _tell(self, listener: EndpointsListener) -> None:
        if self._adopted is None:
            return
        try:
            listener({endpoint: dict(partitions) for endpoint, partitions in self._adopted.items()})
        except Exception:
            _log.exception("an endpoints listener failed")

    def set_picture_listener(self, listener: PictureListener) -> None:
        """Call `listener` on the loop whenever another picture is adopted, and when contact is lost: before
        the manager is entered."""
        self._picture_listener = listener

    # -- servers that watch each other

    def set_members_listener(self, listener: MembersListener) -> None:
        """Call `listener` with the descriptor znodes whenever they were read, on the loop."""
        self._members_listener = listener

    async def evict(self, name: str) -> bool:
        """Delete the descriptor of this name, which has been challenged, and give its partitions to those
        that stay: False when it has answered or is not there, StoreError and ClusterError when nothing is
        known.

        Only a server that is registered itself evicts, so one always stays.
        """
        async with self._lock:
            snapshot = await self._reader.snapshot()
            evicted = next((znode for znode in snapshot.znodes if znode.name == name), None)
            members = members_without(snapshot, name)
            if evicted is None or not self._registrations.keys() & members.keys():
                return False
            new = await self._assign(snapshot.cversion + 1, snapshot, members)
            done = await write_eviction(self._store, self._paths, snapshot, evicted, new)
        self._wake.set()
        return done

    # -- for clients

    cluster_key: None = None
    """Clients of ZooKeeper know their cluster by its root."""

    @property
    def producers(self) -> ZooKeeperProducers:
        """The named producers of the cluster."""
        return ZooKeeperProducers(self._store, self._paths, self._rng)

    async def new_client_id(self) -> int:
        """An id no client had before; IdsExhaustedError, ConnectionLostError."""
        return await take_id(self._store, self._paths.client_ids, self._rng)

    async def new_client_ids(self, count: int, timeout_seconds: float) -> range:
        """At most `count` ids no client had before; errors as `new_client_id`."""
        return await take_ids(
            self._store, self._paths.client_ids, self._rng, count, timeout_seconds=timeout_seconds
        )

    async def new_server_id(self) -> int:
        """An id no server had before; IdsExhaustedError, ConnectionLostError."""
        return await take_id(self._store, self._paths.server_ids, self._rng)

    def add_endpoints_listener(self, listener: EndpointsListener) -> Callable[[], None]:
        """Call `listener` with all endpoints and their partitions: now, if they are known, and whenever
        they change.

        It is a synchronous call on the loop. Returns the function that removes it. Losing ZooKeeper changes
        nothing: the last known endpoints stay.
        """
        self._listeners.append(listener)
        self._tell(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    # -- for servers

    async def register_server(
        self, endpoint: Endpoint, on_partitions: OnPartitions, *, server_id: int | None = None
    ) -> ServerRegistration:
        """Take part as a server. Open the port first: clients come as soon as this is written.

        `on_partitions` is called on the loop with all partitions of this server and their generations
        whenever they change, `{}` when the ZooKeeper session is, or may be, over; it may be called before
        this returns. The registration survives the loss of the session with the same server id. ConnectError
        when ZooKeeper stays away meanwhile for 30 s; other errors pass. Cancellation may leave a descriptor
        behind that goes with the session.
        """
        try:
            return await self._register(endpoint, on_partitions, server_id)
        except (ConnectionLostError, SessionLostError) as error:
            raise ConnectError(f"ZooKeeper stayed away while {endpoint} registered: {error}") from None

    async def _register(
        self, endpoint: Endpoint, on_partitions: OnPartitions, server_id: int | None
    ) -> ServerRegistration:
        if server_id is None:
            server_id = await self._unused_server_id(endpoint)
        num_partitions = self.cluster_params.num_partitions
        preferred = await patiently(
            lambda: load_preferred(self._store, self._paths, endpoint, num_partitions)
        )
        descriptor = ServerDescriptor(server_id, endpoint, preferred)
        registration = ServerRegistration(self, self._store, self._paths, descriptor, on_partitions)
        self._registrations[server_id] = registration
        try:
            await self._attempt(self._evaluate, 30.0)
        except ClusterError:
            await self.leave(registration, 1.0)
            raise
        except BaseException:
            self._registrations.pop(server_id, None)
            raise
        self._wake.set()
        return registration

    async def _unused_server_id(self, endpoint: Endpoint) -> int:
        """The next id that no server elsewhere has: the counter may be an older copy, and two servers of one
        id would delete each other's descriptors."""
        while True:
            server_id = await self.new_server_id()
            reader = MembershipReader(self._store, self._paths, lambda: None)
            others = {
                znode.descriptor.server_id
                for znode in await patiently(reader.descriptors)
                if znode.descriptor.endpoint != endpoint
            }
            if server_id not in others:
                return server_id
            _log.warning(
                "server id %d is in use: the counter of ids was restored from an older copy", server_id
            )

    async def change_preferred(
        self,
        registration: ServerRegistration,
        choose: Callable[[frozenset[PartitionId]], Iterable[int]],
        timeout_seconds: float,
    ) -> None:
        """See `Registrar`."""
        async with self._preferences_lock:  # one change at a time, first come, first served
            chosen = check_preferred(choose(registration.preferred), self.cluster_params.num_partitions)

            async def change() -> None:
                if self._registrations.get(registration.server_id) is not registration:
                    raise ManagerClosedError(f"server {registration.server_id} is not registered any longer")
                old = registration.descriptor
                await store_preferred(self._store, self._paths, old.endpoint, chosen)
                registration.descriptor = ServerDescriptor(old.server_id, old.endpoint, chosen)
                await self._reassign()

            await self._attempt(change, timeout_seconds)

    async def _reassign(self) -> None:
        """Put the descriptors right, then write the assignment they ask for, if it is another one."""
        snapshot = await self._reader.snapshot()
        for registration in tuple(self._registrations.values()):
            if await registration.ensure_descriptor(snapshot):
                snapshot = await self._reader.snapshot()
        await self._write_assignment(snapshot)
        self._wake.set()

    async def leave(self, registration: ServerRegistration, timeout_seconds: float) -> None:
        """See `Registrar`."""
        if self._registrations.get(registration.server_id) is not registration:
            return
        self._leaving.add(self._registrations.pop(registration.server_id))

        async def delete() -> None:  # under the lock: an evaluation under way may be writing the descriptor
            await registration.delete_descriptors(await self._reader.descriptors())

        try:
            async with asyncio.timeout(timeout_seconds):
                await self._attempt(delete, timeout_seconds)
        except (StoreError, TimeoutError) as error:
            _log.warning(
                "the descriptor of server %d goes with its session: %s",
                registration.server_id,
                str(error) or f"no answer within {timeout_seconds:g} s",
            )
        finally:
            self._leaving.discard(registration)
            registration.deliver({})

    async def _attempt(self, action: Callable[[], Awaitable[None]], timeout_seconds: float) -> None:
        """Run `action` under the lock; after a retriable error pause without it and try again, until the
        time is up. Every action reads before it writes and may be begun anew at any point, so nothing is
        repeated blindly."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        backoff = Backoff(_INITIAL_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, self._rng, spread=AROUND)
        while True:
            try:
                async with self._lock:
                    await action()
                return
            except ClusterError as error:
                pause = backoff.next_seconds()
                if not (error.retriable or isinstance(error, NoNodeError)) or loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
