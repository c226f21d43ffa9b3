"""The blocking facade: the same client from threads without a loop. The fake cluster runs on a loop of its
own thread."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from client_tests.helpers import Application, settings_for
from waltz_client import (
    Append,
    ClientClosedError,
    Committed,
    LockConflictError,
    LockId,
    Transaction,
    UsageError,
    WaltzClient,
)
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing.producers import LogProducers
from waltz_cluster.errors import ClusterNotFoundError
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.serializers import ClusterParams
from waltz_protocol.types import Endpoint, Generation, PartitionId
from waltz_testkit.fake_cluster import FakeCluster
from waltz_testkit.fake_cluster import fake_cluster as start_cluster


class FakeThread:
    """A fake cluster whose loop is not the test's."""

    def __init__(self) -> None:
        self.cluster: FakeCluster | None = None
        self.client_ids = itertools.count(17)
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._started.wait(10)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        async with start_cluster(2) as self.cluster:
            self._started.set()
            await self._stop.wait()

    def close(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


@pytest.fixture
def fakes() -> Iterator[FakeThread]:
    thread = FakeThread()
    yield thread
    thread.close()


class StaticDiscovery:
    """Discovery that never changes. Client ids come from a counter that all clients of the cluster share, as
    in ZooKeeper."""

    def __init__(self, cluster: FakeCluster, client_ids: Iterator[int]) -> None:
        self.cluster_params = ClusterParams("fake cluster", 2)
        self._cluster = cluster
        self._client_ids = client_ids

    cluster_key = None
    producers = LogProducers()

    async def new_client_id(self) -> int:
        return next(self._client_ids)

    def add_endpoints_listener(
        self, listener: Callable[[dict[Endpoint, dict[PartitionId, Generation]]], None]
    ) -> Callable[[], None]:
        owned = {PartitionId(p): Generation(1) for p in (0, 1)}
        listener({self._cluster.servers[0].endpoint: owned})
        return lambda: None


def connect(fakes: FakeThread, callbacks: Application | None = None) -> BlockingWaltzClient:
    cluster = fakes.cluster
    if cluster is None:
        raise AssertionError("not started")
    settings = settings_for(cluster, maxConcurrentTransactions=100)
    return BlockingWaltzClient(
        lambda: WaltzClient.connect(settings, callbacks, discovery=StaticDiscovery(cluster, fakes.client_ids))
    )


def test_append_and_read_without_a_loop(fakes: FakeThread) -> None:
    with connect(fakes) as client:
        lock = LockId("a", 1)
        assert client.append(partition=0, data=b"one", write_locks=[lock]) == Committed(0, 0)
        with pytest.raises(LockConflictError):
            client.append(partition=0, data=b"two", write_locks=[lock], as_of=-1)
        results = client.append_many([Append(0, b"%d" % i) for i in range(100)], deadline_seconds=10)
        assert results == [Committed(0, i + 1) for i in range(100)]
        data = [t.data for t in client.feed(0, after=-1, until=100)]
        assert data == [b"one"] + [b"%d" % i for i in range(100)]
        assert client.get_data(0, 0) == b"one"
        assert client.high_water_mark(0) == 100
        assert (client.client_id, client.cluster_name, client.num_partitions) == (17, "fake cluster", 2)
        assert client.get_partitions() == [0]
        client.flush_transactions(deadline_seconds=5)
        assert not client.has_pending_transactions()
        feed = client.feed(0, after=-1)
        next(feed)
        feed.close()
    with pytest.raises(ClientClosedError):
        client.append(partition=0, data=b"x")
    client.close()


def test_many_threads(fakes: FakeThread) -> None:
    with connect(fakes) as client:
        got: list[int] = []

        def write() -> None:
            for _ in range(20):
                got.append(client.append(partition=1, data=b"x", deadline_seconds=10).transaction_id)

        threads = [threading.Thread(target=write) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == list(range(100))


def test_a_call_from_the_clients_own_thread_is_refused(fakes: FakeThread) -> None:
    refused: list[str] = []
    applied = threading.Event()

    class Calling(Application):
        async def apply_transaction(self, transaction: object) -> None:
            try:
                client.append(partition=0, data=b"y")
            except UsageError as error:
                refused.append(str(error))
            applied.set()

    with connect(fakes, Calling()) as client:
        client.append(partition=0, data=b"x")
        assert applied.wait(10)
    assert "own thread" in refused[0]


def test_an_error_while_opening_ends_the_thread() -> None:
    before = threading.active_count()
    settings = settings_for(FakeCluster(1))
    with (
        pytest.raises(ClusterNotFoundError),
        BlockingWaltzClient.connect(settings, store=lambda: MemoryZooKeeper().session()),
    ):
        pass
    assert threading.active_count() == before


def test_close_from_a_callback_is_refused_and_closes_nothing(fakes: FakeThread) -> None:
    refused: list[BaseException] = []
    applied = threading.Event()

    class Closing(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            try:
                client.close()
            except BaseException as error:
                refused.append(error)
            applied.set()

    with connect(fakes, Closing()) as client:
        assert client.append(partition=0, data=b"x") == Committed(0, 0)
        assert applied.wait(10)
        assert isinstance(refused[0], UsageError)
        assert client.append(partition=1, data=b"y") == Committed(1, 0)


def test_a_call_that_meets_the_end_of_the_loop_does_not_hang(fakes: FakeThread) -> None:
    """Another thread ends the loop just before the call reaches it, as at the end of a close."""
    client = connect(fakes)
    client.__enter__()
    client._thread._stop()
    assert client._thread._thread is not None
    client._thread._thread.join(10)
    errors: list[BaseException] = []

    def call() -> None:
        try:
            client.high_water_mark(0, deadline_seconds=1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert isinstance(errors[0], ClientClosedError)


def test_before_it_is_entered_a_call_says_what_is_missing() -> None:
    """It was not closed: that would send people after whoever closes it."""
    client = BlockingWaltzClient.connect({"servers": ["127.0.0.1:1"], "client.ssl.enabled": False})
    for call in (
        lambda: client.append(partition=0, data=b"x"),
        lambda: client.num_partitions,
        lambda: next(iter(client.feed(0))),
    ):
        with pytest.raises(UsageError, match=r"enter the client first: with BlockingWaltzClient"):
            call()
    assert client.close()
