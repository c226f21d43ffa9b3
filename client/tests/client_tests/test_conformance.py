"""The in-process log behaves as a server does: the same tests run over both, with the same client.

*server*: the client-facing half of the shipped server on a loopback port (its stores are in memory).
*in-process*: `waltz_client.testing`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from client_tests.helpers import Application, until
from waltz_client import (
    BYTES,
    JSON,
    Append,
    ClientAheadError,
    Committed,
    LockConflictError,
    LockId,
    PartitionInactiveError,
    PartitionNotFoundError,
    PendingAppend,
    TransactionBuilder,
    TransactionContext,
    TransactionNotFoundError,
    WaltzClient,
    WaltzClientCallbacks,
    WindowFullError,
)
from waltz_client.testing import InProcessLog
from waltz_client.testing.producers import LogProducers
from waltz_protocol.types import Endpoint, Generation, PartitionId
from waltz_testkit.loopback_server import LoopbackServer

PARTITIONS = 3
A, B, C = (LockId("account", number) for number in (1, 2, 3))


@dataclass(frozen=True)
class Params:
    name: str = "conformance"
    num_partitions: int = PARTITIONS


class StaticDiscovery:
    """Everything is on one server, in generation 1, forever."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._last_id = 0
        self.cluster_params = Params()

    cluster_key = None
    producers = LogProducers()

    async def new_client_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def add_endpoints_listener(
        self, listener: Callable[[dict[Endpoint, dict[PartitionId, Generation]]], None]
    ) -> Callable[[], None]:
        listener({self._endpoint: {PartitionId(p): Generation(1) for p in range(PARTITIONS)}})
        return lambda: None


class Cluster:
    """Either of the two. `await cluster.client(...)` is a client that is closed at the end."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    def make(self, callbacks: WaltzClientCallbacks | None, settings: dict[str, object]) -> WaltzClient:
        raise NotImplementedError

    def disconnect(self) -> None:
        raise NotImplementedError

    async def client(self, callbacks: WaltzClientCallbacks | None = None, **settings: object) -> WaltzClient:
        keys = {f"client.{key}": value for key, value in settings.items()}
        return await self._stack.enter_async_context(self.make(callbacks, keys))


class InProcess(Cluster):
    def __init__(self, stack: AsyncExitStack) -> None:
        super().__init__(stack)
        self._log = InProcessLog(PARTITIONS, name="conformance")

    def make(self, callbacks: WaltzClientCallbacks | None, settings: dict[str, object]) -> WaltzClient:
        return self._log.client(callbacks, settings)

    def disconnect(self) -> None:
        self._log.disconnect()


class Server(Cluster):
    def __init__(self, stack: AsyncExitStack, server: LoopbackServer) -> None:
        super().__init__(stack)
        self._server = server
        self._discovery = StaticDiscovery(Endpoint("127.0.0.1", server.listener.port))

    def make(self, callbacks: WaltzClientCallbacks | None, settings: dict[str, object]) -> WaltzClient:
        keys = {
            "zookeeper.connectString": "none:1",
            "zookeeper.sessionTimeout": 10_000,
            "cluster.root": "/none",
            "client.ssl.enabled": False,
            **settings,
        }
        return WaltzClient.connect(keys, callbacks, discovery=self._discovery, random=random.Random(1))

    def disconnect(self) -> None:
        for channel in self._server.listener.channels:
            channel.abort("cut")


@pytest.fixture(params=["in-process", "server"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        if request.param == "in-process":
            yield InProcess(stack)
        else:
            server = LoopbackServer(dict.fromkeys(range(PARTITIONS), 1), num_partitions=PARTITIONS)
            yield Server(stack, await stack.enter_async_context(server))


async def texts(client: WaltzClient, partition: int = 0) -> list[bytes | None]:
    last = await client.high_water_mark(partition)
    return [one.data async for one in client.feed(partition, after=-1, until=last)]


async def test_facts(cluster: Cluster) -> None:
    client, other = await cluster.client(), await cluster.client()
    assert (client.cluster_name, client.num_partitions) == ("conformance", PARTITIONS)
    assert client.client_id != other.client_id
    assert await client.high_water_mark(2) == -1
    (server,) = client.servers.endpoints()
    assert await client.servers.partitions(server) == [0, 1, 2]
    assert await client.servers.health(server) == {0: True, 1: True, 2: True}
    with pytest.raises(PartitionNotFoundError):
        await client.append(partition=PARTITIONS, data=b"")


async def test_what_is_appended_is_read_in_order_by_everybody(cluster: Cluster) -> None:
    writer, reader = await cluster.client(), await cluster.client()
    for number in range(5):
        done = await writer.append(partition=1, data=f"{number}".encode(), header=number - 2)
        assert done == Committed(1, number)
    feed = reader.feed(1, after=-1, until=4)
    seen = [(one.transaction_id, one.header, one.data, one.req_id.client_id) async for one in feed]
    assert seen == [(n, n - 2, f"{n}".encode(), writer.client_id) for n in range(5)]
    assert await reader.get_data(1, 3) == b"3"
    assert await reader.get_data(1, 3, JSON) == 3
    with pytest.raises(TransactionNotFoundError):
        await reader.get_data(1, 5)
    assert await reader.high_water_mark(1) == 4
    assert await reader.high_water_mark(0) == -1


async def test_a_feed_from_now_on_and_over_several_partitions(cluster: Cluster) -> None:
    client = await cluster.client()
    await client.append(partition=0, data=b"before")
    for partition in range(PARTITIONS):
        await client.writable(partition)
    seen: dict[int, list[bytes | None]] = {}
    async with client.feed(range(PARTITIONS), after=None) as feed:
        reader = asyncio.get_running_loop().create_task(anext(feed))
        await asyncio.sleep(0.05)
        for number in range(6):
            await client.append(partition=number % PARTITIONS, data=f"{number}".encode())
        first = await reader
        seen.setdefault(first.partition_id, []).append(first.data)
        while sum(map(len, seen.values())) < 6:
            one = await anext(feed)
            seen.setdefault(one.partition_id, []).append(one.data)
    assert seen == {0: [b"0", b"3"], 1: [b"1", b"4"], 2: [b"2", b"5"]}


async def test_many_transactions(cluster: Cluster) -> None:
    client = await cluster.client(maxConcurrentTransactions=200)
    appends = [Append(0, f"{number}".encode(), context=number) for number in range(1000)]
    results = await client.append_many(appends)
    assert results == [Committed(0, number) for number in range(1000)]
    seen = []
    async for batch in client.feed(0, after=499, until=999).batches():
        seen += [one.data for one in batch]
    assert seen == [append.data for append in appends[500:]]


async def test_a_large_payload(cluster: Cluster) -> None:
    client = await cluster.client()
    data = random.Random(1).randbytes(900_000)
    await client.append(partition=0, data=data)
    await client.append(partition=0, data=b"")
    assert await texts(client) == [data, b""]


async def test_write_locks(cluster: Cluster) -> None:
    client = await cluster.client()
    await client.append(partition=0, data=b"0", write_locks=[A])
    with pytest.raises(LockConflictError) as caught:
        await client.append(partition=0, data=b"-", write_locks=[B, A], as_of=-1)
    assert caught.value.conflicting_high_water_mark == 0
    await client.append(partition=0, data=b"1", write_locks=[A], as_of=0)
    await client.append(partition=0, data=b"2", write_locks=[B], as_of=-1)
    await client.append(partition=1, data=b"another partition", write_locks=[A], as_of=-1)
    assert await texts(client) == [b"0", b"1", b"2"]


async def test_read_locks_are_checked_and_leave_no_trace(cluster: Cluster) -> None:
    client = await cluster.client()
    await client.append(partition=0, data=b"0", write_locks=[A])
    with pytest.raises(LockConflictError):
        await client.append(partition=0, data=b"-", read_locks=[A], as_of=-1)
    await client.append(partition=0, data=b"1", read_locks=[A], as_of=0)
    await client.append(partition=0, data=b"2", write_locks=[A], as_of=0)


async def test_append_locks_are_not_checked_and_leave_a_trace(cluster: Cluster) -> None:
    client = await cluster.client()
    await client.append(partition=0, data=b"0", append_locks=[A])
    await client.append(partition=0, data=b"1", append_locks=[A], as_of=-1)
    with pytest.raises(LockConflictError) as caught:
        await client.append(partition=0, data=b"-", write_locks=[A], as_of=0)
    assert caught.value.conflicting_high_water_mark == 1


async def test_a_view_without_as_of_is_what_the_client_has_received(cluster: Cluster) -> None:
    one, other = await cluster.client(), await cluster.client()
    await one.writable(0)
    await one.append(partition=0, data=b"0", write_locks=[A])
    await one.append(partition=0, data=b"1", write_locks=[A])
    await other.append(partition=0, data=b"2", write_locks=[A])
    await until(lambda: one._open.partitions.streams[0].received == 2)
    await one.append(partition=0, data=b"3", write_locks=[A])


async def test_nowait_and_the_window(cluster: Cluster) -> None:
    client = await cluster.client(maxConcurrentTransactions=3)
    await client.writable(0)
    done: list[PendingAppend] = []
    for number in range(3):
        client.append_nowait(partition=0, data=b"x", on_done=done.append, context=number)
    with pytest.raises(WindowFullError):
        client.append_nowait(partition=0, data=b"x", on_done=done.append)
    assert client.has_pending_transactions()
    await client.flush_transactions(deadline_seconds=5)
    assert not client.has_pending_transactions()
    assert [(one.context, one.transaction_id) for one in done] == [(0, 0), (1, 1), (2, 2)]


class Increment(TransactionContext):
    """Adds one to a counter that the callbacks keep."""

    def __init__(self, counter: "Counter") -> None:
        super().__init__()
        self.counter = counter
        self.ends: list[object] = []
        self.attempts = 0
        self.conflicts = 0

    def partition_id(self, num_partitions: int) -> int:
        return 0

    async def execute(self, builder: TransactionBuilder) -> bool:
        self.attempts += 1
        value = self.counter.value + 1
        await asyncio.sleep(0)
        builder.set_transaction_data(f"{value}".encode(), BYTES).set_write_locks([A])
        return True

    def on_lock_failure(self) -> None:
        self.conflicts += 1

    def on_completion(self, committed: bool) -> None:
        self.ends.append(committed)

    def on_application(self) -> None:
        self.ends.append("applied")


class Counter(Application):
    value = 0

    async def apply_transaction(self, transaction) -> None:  # type: ignore[no-untyped-def]
        await super().apply_transaction(transaction)
        self.value = int(await transaction.raw_data())


async def test_contexts_conflict_are_run_again_and_add_up(cluster: Cluster) -> None:
    counters = [Counter(), Counter()]
    clients = [await cluster.client(counter) for counter in counters]
    work = [Increment(counter) for counter in counters for _ in range(10)]
    async with asyncio.TaskGroup() as group:
        for number, context in enumerate(work):
            group.create_task(clients[number // 10].submit(context))
    await until(lambda: all(context.ends == [True, "applied"] for context in work))
    assert sum(context.conflicts for context in work) > 0
    await until(lambda: counters[0].value == counters[1].value == 20)
    assert await texts(clients[0]) == [f"{number + 1}".encode() for number in range(20)]


async def test_callbacks_begin_at_their_mark(cluster: Cluster) -> None:
    client = await cluster.client()
    await client.append_many([Append(0, f"{number}".encode()) for number in range(10)])
    application = Application(mark=4)
    await cluster.client(application, autoMount=True)
    await until(lambda: application.mark == 4 and len(application.applied) >= 5)
    assert [key for key in application.applied if key[0] == 0] == [(0, number) for number in range(5, 10)]


@pytest.mark.usefixtures("ahead_at_once")
async def test_a_reader_ahead_of_the_log_is_told(cluster: Cluster) -> None:
    client = await cluster.client()
    await client.append(partition=0, data=b"0")
    with pytest.raises(ClientAheadError):
        await anext(client.feed(0, after=7))


async def test_chosen_partitions(cluster: Cluster) -> None:
    client = await cluster.client(autoMount=False)
    with pytest.raises(PartitionInactiveError):
        await client.append(partition=0, data=b"")
    await client.set_partitions([0, 2])
    assert client.get_partitions() == [0, 2]
    await client.append(partition=2, data=b"2")
    await client.set_partitions([0])
    with pytest.raises(PartitionInactiveError):
        await client.append(partition=2, data=b"2")
    await client.set_partitions([2])
    assert (await client.append(partition=2, data=b"3")).transaction_id == 1


async def test_connections_that_are_cut_lose_and_double_nothing(cluster: Cluster) -> None:
    writer, reader = await cluster.client(longWaitThreshold=250), await cluster.client()
    seen: list[bytes | None] = []

    async def read() -> None:
        async for one in reader.feed(0, after=-1, until=59):
            seen.append(one.data)

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        for number in range(60):
            if number % 15 == 7:
                cluster.disconnect()
            await writer.append(partition=0, data=f"{number}".encode())
    assert seen == [f"{number}".encode() for number in range(60)]


async def _outcomes(cluster: Cluster, seed: int) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    client = await cluster.client()
    await client.writable(0)
    outcomes: list[tuple[int, ...]] = []
    locks = [LockId(name, number) for name in "abc" for number in range(40)]
    mark = -1
    for _ in range(300):
        write, read, append = (rng.sample(locks, rng.choice((0, 0, 1, 1, 2, 5))) for _ in range(3))
        as_of = rng.randint(-1, mark)
        try:
            done = await client.append(
                partition=0,
                data=b"",
                write_locks=write,
                read_locks=read,
                append_locks=append,
                as_of=as_of,
            )
            mark = done.transaction_id
            outcomes.append((mark,))
        except LockConflictError as conflict:
            outcomes.append((-1, conflict.conflicting_high_water_mark))
    return outcomes


@pytest.mark.parametrize("seed", range(3))
async def test_client_server_13_37_locks_are_decided_as_by_the_server(seed: int) -> None:
    """The same appends with the same locks and views, one after another: the same decisions, to the
    conflicting mark."""
    async with AsyncExitStack() as stack:
        server = LoopbackServer(dict.fromkeys(range(PARTITIONS), 1), num_partitions=PARTITIONS)
        real = await _outcomes(Server(stack, await stack.enter_async_context(server)), seed)
        ours = await _outcomes(InProcess(stack), seed)
    assert ours == real
    assert 50 < sum(outcome[0] == -1 for outcome in ours) < 250
