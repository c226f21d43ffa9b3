"""Owners come and go, nodes fail, clients append, flush, mount again: no answer may turn out to be wrong.

The whole server side of one partition (partition layer on the real store) on in-memory nodes and ZooKeeper,
on virtual time. Every answer is written down with what it promises, and all promises are held against the log
in the end.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from itertools import accumulate

import pytest

from server_tests.store.fakes import PARTITION, ROOT, Cluster, FakeLink, until
from waltz_cluster.memory_store import Fault
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import ConnectError
from waltz_protocol.messages.client import FeedData, FlushResponse, LockFailure, MountResponse, MountState
from waltz_protocol.types import Endpoint, ReqId
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.partition.feed_cache import FeedCache
from waltz_server.partition.owned_partition import Partition, PartitionSettings
from waltz_server.partition.shared_caches import SharedCaches
from waltz_server.partition.transaction_cache import TransactionCache
from waltz_server.store.api import PartitionStore, StoreListener, StoreSettings, StoreState
from waltz_server.store.quorum_store import QuorumPartitionStore
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink
from waltz_testkit.client_peers import FakeClient, make_append, split_frames

pytestmark = pytest.mark.looptime

FAULT_SECONDS = 15.0
CLIENTS = 4
LOCKS = 6


@dataclass
class Sent:
    """One append, as the client knows it."""

    req_id: ReqId
    high_water_mark: int
    write: tuple[int, ...]
    read: tuple[int, ...]
    append: tuple[int, ...]


@dataclass
class Promises:
    """What was said, to be checked at the end."""

    log: dict[int, ReqId] = field(default_factory=dict)
    failed: list[ReqId] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def fed(self, transaction_id: int, req_id: ReqId) -> None:
        if self.log.setdefault(transaction_id, req_id) != req_id:
            self.wrong.append(f"{transaction_id} was fed as {req_id} and as {self.log[transaction_id]}")


class Owner:
    """One server's partition."""

    def __init__(self, world: World, generation: int) -> None:
        self.generation = generation
        self.blocked: set[str] = set()
        self.zk = world.cluster.zk.session()
        self._world = world
        rng = random.Random(world.rng.random())
        directory = ReplicaDirectory(self._open, settings=world.settings, rng=rng)

        def make_store(partition_id: int, generation: int, listener: StoreListener) -> PartitionStore:
            return QuorumPartitionStore(
                partition_id,
                generation,
                directory=directory,
                metadata=StoreMetadata(self.zk, ROOT),
                settings=world.settings,
                listener=listener,
                rng=rng,
                replicas=world.cluster.names,
            )

        self.partition = Partition(
            PARTITION,
            generation,
            make_store=make_store,
            settings=PartitionSettings(lock_table_size=64),
            caches=SharedCaches(FeedCache(200_000), TransactionCache(50_000)),
            metrics=MetricsRegistry(lambda: 0.0),
        )
        self.directory = directory
        self.task = asyncio.get_running_loop().create_task(self.partition.run())

    async def _open(self, endpoint: Endpoint) -> ReplicaLink:
        name = str(endpoint)
        node = self._world.cluster.nodes[name]
        await asyncio.sleep(0.001)
        if not node.up or name in self.blocked:
            raise ConnectError("connection refused")
        return FakeLink(node, self._world.settings.request_timeout_seconds)

    async def stop(self, *, crash: bool) -> None:
        if crash:
            self.task.cancel()
        else:
            self.partition.close()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.directory.close()


class Connection(FakeClient):
    """A connection that hands over what it is sent at once."""

    def __init__(self, owner: Owner, user: User, seq_num: int) -> None:
        super().__init__(user.client_id, seq_num=seq_num)
        self.owner = owner
        self.generation = owner.generation
        self.ready = False
        self.mount: ReqId | None = None
        self.asked: dict[ReqId, int] = {}
        """Flush or mount -> number of appends the client had sent before it."""
        self._user = user

    def send(self, *parts: bytes | memoryview) -> None:
        if not self.closed:
            for version, body in split_frames(b"".join(parts)):
                self._user.received(self, CLIENT.decode(memoryview(body), version))


class User:
    """A client: on the newest owner it has heard of, and it hears late."""

    def __init__(self, world: World, client_id: int) -> None:
        self.client_id = client_id
        self.sent: list[Sent] = []
        self.mark = -1
        self.resolved: list[tuple[str, int, int]] = []
        """(answer, count, mark): of the first `count` appends nothing will be in the log above the mark."""
        self._world = world
        self._connection: Connection | None = None
        self._numbers = 0

    def _req_id(self, generation: int) -> ReqId:
        self._numbers += 1
        return ReqId(self.client_id, generation, PARTITION, self._numbers)

    def received(self, connection: Connection, message: object) -> None:
        promises = self._world.promises
        if connection is not self._connection:
            return
        if isinstance(message, FeedData):
            promises.fed(message.transaction_id, message.req_id)
            if message.transaction_id > self.mark + 1:
                promises.wrong.append(f"{self.client_id}: {message.transaction_id} follows {self.mark}")
            self.mark = max(self.mark, message.transaction_id)
        elif isinstance(message, LockFailure):
            promises.failed.append(message.req_id)
            if message.transaction_id > (connection.owner.partition.high_water_mark or 0):
                promises.wrong.append(f"lock failure by uncommitted {message.transaction_id}")
        elif isinstance(message, FlushResponse):
            self._resolved("flush", connection.asked.pop(message.req_id), message.transaction_id)
        elif isinstance(message, MountResponse):
            count = connection.asked.pop(message.req_id, 0)
            if message.state is MountState.CLIENT_AHEAD:
                promises.wrong.append(f"{self.client_id} is ahead with {self.mark}")
            elif message.state is MountState.READY:
                self._resolved("mount", count, self.mark)
                connection.ready = True
                request = self._req_id(connection.owner.generation)
                connection.owner.partition.feed(connection, request.pack(), request.generation, self.mark)
            else:
                connection.mount = None

    def _resolved(self, who: str, count: int, mark: int) -> None:
        self.resolved.append((who, count, mark))

    def act(self) -> None:
        world, rng = self._world, self._world.rng
        connection = self._connection
        owner = world.owners[-1] if connection is None or rng.random() < 0.05 else connection.owner
        generation = owner.generation
        if connection is None or connection.generation != generation or rng.random() < 0.01:
            self._disconnect()
            self._numbers += 1
            connection = self._connection = Connection(owner, self, self._numbers)
        partition = owner.partition
        if connection.mount is None:
            connection.ready = False
            connection.mount = self._req_id(generation)
            connection.asked[connection.mount] = len(self.sent)
            partition.mount(connection, connection.mount.pack(), generation, self.mark)
        elif connection.ready:
            for _ in range(rng.randint(0, 3)):
                self._append(connection, generation)
            if rng.random() < 0.1:
                flush = self._req_id(generation)
                connection.asked[flush] = len(self.sent)
                partition.flush(connection, flush.pack(), generation)
            if rng.random() < 0.2:
                request = self._req_id(generation)
                partition.feed(connection, request.pack(), generation, self.mark)

    def _append(self, connection: Connection, generation: int) -> None:
        rng = self._world.rng
        locks = [tuple(rng.sample(range(LOCKS), rng.choice([0, 0, 1]))) for _ in range(3)]
        mark = self.mark - rng.choice([0, 0, 0, 5])
        sent = Sent(self._req_id(generation), max(mark, -1), *locks)
        self.sent.append(sent)
        request = make_append(
            sent.req_id,
            client_high_water_mark=sent.high_water_mark,
            write=sent.write,
            read=sent.read,
            append=sent.append,
        )
        connection.owner.partition.append(connection, request)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.closed = True
            connection.owner.partition.client_closed(connection)


class World:
    """The cluster, its owners, its clients and what goes wrong."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.promises = Promises()
        self.settings = StoreSettings(
            checkpoint_interval=self.rng.choice([30, 250_000]),
            replica_backlog_bytes=self.rng.choice([2_000, 32 * 1024 * 1024]),
            max_batch_records=self.rng.choice([3, 4096]),
            max_batch_size=1,
            max_in_flight_bytes=self.rng.choice([500, 16 * 1024 * 1024]),
            request_timeout_seconds=0.5,
            max_retry_interval_ms=1_000,
            catch_up_batch_records=7,
        )
        self.generation = 1
        self.owners = [Owner(self, 1)]
        self.users = [User(self, 1 + number) for number in range(CLIENTS)]

    async def load(self) -> None:
        while True:
            self.rng.choice(self.users).act()
            await asyncio.sleep(self.rng.random() * 0.02)

    async def one_fault(self) -> None:
        rng = self.rng
        node = self.cluster.nodes[rng.choice(self.cluster.names)]
        kind = rng.choice(["kill", "break", "hang", "slow", "owner", "owner", "owner", "zk", "flaky", "all"])
        if kind == "kill":
            node.kill()
        elif kind == "break":
            for link in list(node.links):
                link.break_off("broken")
        elif kind == "hang":
            node.answers = False
        elif kind == "slow":
            node.delay_seconds = rng.choice([0.002, 0.05, 0.3])
        elif kind == "flaky":
            node.refuse = lambda _kind, _session: "flaky" if rng.random() < 0.1 else None
        elif kind == "zk":
            faults = [None, None, Fault.LOSE_REPLY, Fault.LOSE_REQUEST]
            self.owners[-1].zk.fault = lambda _operation, _path: rng.choice(faults)
        elif kind == "all":
            for each in self.cluster.nodes.values():
                each.answers = rng.random() < 0.5
        else:
            await self.change_owner()
        await asyncio.sleep(rng.random() * 2)
        if rng.random() < 0.8:
            self.heal()

    async def change_owner(self) -> None:
        rng = self.rng
        self.generation += 1
        how = rng.choice(["crash", "close", "unnoticed", "unnoticed", "same", "back"])
        last = self.owners[-1]
        if how == "back":  # to an earlier owner, which may still have things in its queue and in flight
            last = rng.choice(self.owners)
        if how in ("same", "back"):
            self.owners.remove(last)
            self.owners.append(last)
            last.generation = self.generation
            last.partition.set_generation(self.generation)
            return
        if how != "unnoticed":
            self.owners.remove(last)
            await last.stop(crash=how == "crash")
        elif rng.random() < 0.5:
            for node in list(self.cluster.nodes.values())[1:]:
                last.blocked.add(node.name)
                for link in list(node.links):
                    link.break_off("cut off")
            await asyncio.sleep(rng.random() * 0.1)
        self.owners.append(Owner(self, self.generation))

    def heal(self) -> None:
        for node in self.cluster.nodes.values():
            node.answers, node.delay_seconds, node.refuse = True, 0.0, None
            if not node.up:
                node.start()
        for owner in self.owners:
            owner.zk.fault = None
            owner.blocked.clear()

    async def peace(self) -> None:
        self.heal()
        last = self.owners[-1]
        for user in self.users:
            user._disconnect()
        for owner in self.owners:
            assert not owner.task.done(), f"a partition ended: {owner.partition.fault} {owner.task}"
            if owner is not last:
                await owner.stop(crash=False)
        self.owners = [last]
        last.partition.set_generation(self.generation + 1)
        store = last.partition.store
        await until(
            lambda: (
                store.state is StoreState.OPEN
                and not last.partition.undecided
                and [r.state for r in store.replicas] == ["voting"] * len(self.cluster.names)
                and len({n.max_txid for n in self.cluster.nodes.values()}) == 1
            ),
            120,
            0.1,
        )
        await last.stop(crash=False)

    def check(self) -> None:
        log = [ReqId.unpack(record, 8) for record in self.cluster.nodes[self.cluster.names[0]].log]
        places = {req_id: place for place, req_id in enumerate(log)}
        assert self.promises.wrong == []
        assert len(places) == len(log)
        assert len(log) > 20
        for place, req_id in self.promises.log.items():
            assert log[place] == req_id, "a transaction that was fed has changed"
        assert not places.keys() & set(self.promises.failed)
        everything = {sent.req_id: sent for user in self.users for sent in user.sent}
        for user in self.users:
            order = [places[sent.req_id] for sent in user.sent if sent.req_id in places]
            assert order == sorted(order), "appends of one client were reordered"
            highest = [-1, *accumulate((places.get(sent.req_id, -1) for sent in user.sent), max)]
            for who, count, mark in user.resolved:
                assert highest[count] <= mark, (
                    f"{who} resolved {count} appends up to {mark}, not {highest[count]}"
                )
        self._check_locks([everything[req_id] for req_id in log])

    @staticmethod
    def _check_locks(log: list[Sent]) -> None:
        written: dict[int, int] = {}
        for place, sent in enumerate(log):
            for lock in (*sent.write, *sent.read):
                assert written.get(lock, -1) <= sent.high_water_mark, (
                    f"{place}: lock {lock} was not respected"
                )
            for lock in (*sent.write, *sent.append):
                written[lock] = place


@pytest.mark.parametrize("seed", range(4))
async def test_no_answer_turns_out_to_be_wrong(seed: int) -> None:
    names = ("a:1", "b:1", "c:1") if seed % 3 else ("a:1", "b:1", "c:1", "d:1", "e:1")
    async with Cluster(names) as cluster:
        world = World(cluster, seed)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            load = tasks.create_task(world.load())
            ends = loop.time() + FAULT_SECONDS
            while loop.time() < ends:
                await asyncio.sleep(world.rng.random() * 0.7)
                await world.one_fault()
            load.cancel()
        await world.peace()
        world.check()
