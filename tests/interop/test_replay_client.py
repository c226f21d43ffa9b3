"""Our client speaks to the recorded server of release 0.13.2."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.interop.recorded_server import (
    RecordedServer,
    client_of,
    kind_of,
    partition_of,
    without_mark,
    without_seq_num,
)
from tests.interop.recordings import frames, transactions
from tests.interop.replay import listening
from tests.interop.trees import ROOT, golden_tree, load_tree, read_tree
from waltz_client import Transaction, WaltzClient
from waltz_client.errors import ClientAheadError
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.serializers import ServerDescriptor
from waltz_protocol.codec import CLIENT
from waltz_protocol.locks import LockId
from waltz_protocol.messages.client import (
    AppendRequest,
    HighWaterMarkRequest,
    MountRequest,
    TransactionDataRequest,
)
from waltz_protocol.types import Endpoint

STAGE = "04-server-started"
DESCRIPTOR = f"{ROOT}/serverDescriptors/s_0000000000"
PARTITIONS = range(4)
AHEAD = 1_000_000


def locks(hashes: tuple[int, ...] | None) -> tuple[LockId, ...]:
    """Locks with these hashes: that of the empty name is 0, so the id is all of it."""
    named = tuple(LockId("", value) for value in hashes or ())
    assert tuple(lock.hash for lock in named) == hashes
    return named


class Application:
    """Says which mark it has reached (nothing unless configured otherwise), and keeps the headers of what it
    is given."""

    def __init__(self, marks: dict[int, int] | None = None) -> None:
        self.marks = marks or {}
        self.applied: list[tuple[int, int, int]] = []
        self.news = asyncio.Event()

    def client_high_water_mark(self, partition_id: int) -> int:
        return self.marks.get(partition_id, -1)

    async def apply_transaction(self, transaction: Transaction) -> None:
        self.applied.append((transaction.partition_id, transaction.transaction_id, transaction.header))
        self.news.set()

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: Exception) -> None:
        raise AssertionError("nothing can fail")

    async def has_applied(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.applied) < count:
                self.news.clear()
                await self.news.wait()


class RecordedSite:
    """Recorded server and recorded tree of stage 04, in which the server has our port."""

    def __init__(self, memory: MemoryZooKeeper, server: RecordedServer) -> None:
        self.memory = memory
        self.server = server

    def client(self, callbacks: Application | None = None) -> WaltzClient:
        settings = {
            "zookeeper.connectString": "memory:2181",
            "zookeeper.sessionTimeout": 10_000,
            "cluster.root": ROOT,
            "client.ssl.enabled": False,
        }
        return WaltzClient.connect(settings, callbacks, store=self.memory.session(), random=random.Random(1))

    def asked(self, kind: int, client_id: int, partition_id: int) -> list[bytes]:
        return [raw for raw in self.server.asked if of(raw, kind, client_id, partition_id)]

    def recorded(self, kind: int, client_id: int, partition_id: int) -> list[bytes]:
        return [raw for raw in self.server.requests if of(raw, kind, client_id, partition_id)]


def of(raw: bytes, kind: int, client_id: int, partition_id: int) -> bool:
    return (kind_of(raw), client_of(raw), partition_of(raw)) == (kind, client_id, partition_id)


@asynccontextmanager
async def recorded_site() -> AsyncIterator[RecordedSite]:
    site = RecordedSite(MemoryZooKeeper(), RecordedServer(frames("client-workload")))
    async with listening(lambda: site.server.answer) as port:
        recorded_descriptor = ServerDescriptor.from_bytes(golden_tree(STAGE)[DESCRIPTOR].data)
        descriptor = ServerDescriptor(recorded_descriptor.server_id, Endpoint("127.0.0.1", port))
        store = await load_tree(site.memory, STAGE, {DESCRIPTOR: descriptor.to_bytes()})
        yield site
        await store.close()


@pytest.mark.timeout(60)
async def test_our_client_does_the_recorded_work_with_the_recorded_server() -> None:
    """Three clients one after another do what those of client-workload did: append and read, replay, be
    ahead.

    Determined: client ids (the counter in ZooKeeper ends as in stage 05) and generations; the Hello's
    versions; per client and partition, byte for byte but for the sequence number: appends with their locks,
    marks and checksums, and requests for data; mounts but for the mark they start at; that what was appended
    comes back under the recorded ids; that the replay is transactions.json; that "client ahead" ends the
    append with that error.

    Not determined: sequence numbers; which connection carries what when; how partitions interleave; how often
    a client asks for marks; the text of the Hello; where a mount starts: 0.13.2 mounts at the application's
    mark and is fed in front of the answer, ours mounts at the server's mark and asks for what is older by a
    feed request, which the recorded server answers with the same frames. An application ahead of the log is
    mounted at its own mark by both.
    """
    listed = {(t["partition"], t["txId"]): t for t in transactions()}
    async with recorded_site() as site:
        await append_and_read(site)
        replayed = Application()
        async with site.client(replayed) as client:
            assert client.client_id == 2
            async with asyncio.timeout(10):
                await replayed.has_applied(len(listed))
        assert sorted(replayed.applied) == [(*place, t["header"]) for place, t in sorted(listed.items())]
        async with site.client(Application({0: AHEAD})) as client:
            assert client.client_id == 3
            with pytest.raises(ClientAheadError):
                await client.append(partition=0, data=b"", deadline_seconds=10)
        store = site.memory.session()
        counters = f"{ROOT}/ids/client"
        ours, golden = (
            (await read_tree(store, counters))[counters],
            golden_tree("05-after-workload")[counters],
        )
        assert ours == golden
        await store.close()
    ahead = (MountRequest.TYPE, 3, 0)
    assert [without_seq_num(raw) for raw in site.asked(*ahead)] == [
        without_seq_num(raw) for raw in site.recorded(*ahead)
    ]
    assert dict(site.server.lengths) == dict.fromkeys(PARTITIONS, 12)
    for partition_id in PARTITIONS:
        for kind in (AppendRequest.TYPE, TransactionDataRequest.TYPE):
            place = (kind, 1, partition_id)
            asked = [without_seq_num(raw) for raw in site.asked(*place)]
            assert asked == [without_seq_num(raw) for raw in site.recorded(*place)], place
        for client_id in (1, 2):
            place = (MountRequest.TYPE, client_id, partition_id)
            asked = [without_mark(raw) for raw in site.asked(*place)]
            assert asked == [without_mark(raw) for raw in site.recorded(*place)], place


async def append_and_read(site: RecordedSite) -> None:
    """What the application of the first client did, request by request."""
    async with site.client() as client:
        assert client.client_id == 1
        committed_ids: dict[int, int] = {}
        for raw in site.server.requests:
            message = CLIENT.decode(raw[7:], 4)
            if isinstance(message, HighWaterMarkRequest):
                mark = await client.high_water_mark(message.req_id.partition_id, deadline_seconds=10)
                assert mark == committed_ids.get(message.req_id.partition_id, -1)
            elif isinstance(message, AppendRequest):
                committed = await client.append(
                    partition=message.req_id.partition_id,
                    data=message.data or b"",
                    header=message.header,
                    write_locks=locks(message.write_locks),
                    read_locks=locks(message.read_locks),
                    append_locks=locks(message.append_locks),
                    deadline_seconds=10,
                )
                assert committed.transaction_id == message.client_high_water_mark + 1
                committed_ids[message.req_id.partition_id] = committed.transaction_id
            elif isinstance(message, TransactionDataRequest):
                place = (message.req_id.partition_id, message.transaction_id)
                data = await client.get_data(*place, deadline_seconds=10)
                assert data == next(
                    bytes.fromhex(t["data"]) for t in transactions() if (t["partition"], t["txId"]) == place
                )
