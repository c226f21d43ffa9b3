"""Records of one node in both versions of the storage protocol, who is asked for what, and copies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from server_tests.store.fakes import Cluster, FakeLink, FakeNode, entries, until
from server_tests.store.test_router_and_directory import node_with_records
from waltz_protocol.frames.blocks import cut_stored, stored_of_record
from waltz_server.store.api import StoreSettings
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.record_reads import Wanted, WrongRecordsError, read_records
from waltz_server.store.record_run import RecordRun
from waltz_server.store.router import Router, Source

pytestmark = pytest.mark.looptime

MIB = 1 << 20


def wanted(first: int, last: int, max_bytes: int = MIB, *, committed: int = 1 << 40) -> Wanted:
    return Wanted(0, 0, first, last, max_bytes, committed)


def link_to(node: FakeNode, version: int) -> FakeLink:
    node.version = version
    return FakeLink(node, 2.0)


@pytest.mark.parametrize("version", [0, 1])
async def test_both_versions_give_the_same_records(version: int) -> None:
    node = node_with_records("a:1", 20)
    size = ListRequestSize()
    for _ in range(6):
        run = await read_records(link_to(node, version), wanted(3, 12), size)
    assert (run.first, run.count, run.last) == (3, 10, 12)
    stored = [stored_of_record(record) for record in node.log[3:13]]
    assert run.records == stored
    assert run.stored == b"".join(stored)
    assert run.wire == b"".join(node.log[3:13])
    assert ("range" in node.calls) == (version == 1)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_read_is_bounded_in_bytes(version: int) -> None:
    node = node_with_records("a:1", 20)
    one = len(stored_of_record(node.log[0]))
    size = ListRequestSize()
    for _ in range(4):
        run = await read_records(link_to(node, version), wanted(0, 19, 3 * one), size)
    assert run.count == 3
    assert (await read_records(link_to(node, version), wanted(0, 19, 1), size)).count == 1


class _Answers(FakeLink):
    """A node that answers ranges with what a test says."""

    def __init__(self, node: FakeNode, answer: tuple[int, int, bytes]) -> None:
        node.version = 1
        super().__init__(node, 2.0)
        self.answer = answer

    async def stored_range(self, *_: object, **__: object) -> tuple[int, int, bytes]:
        return self.answer


def stored(node: FakeNode, places: Iterable[int]) -> bytes:
    return b"".join(stored_of_record(node.log[place]) for place in places)


@pytest.mark.parametrize(
    ("first", "count", "places", "match"),
    [
        (4, 0, [], "no record 4"),
        (5, 2, [5, 6], "2 records from 5 on"),
        (4, 9, range(4, 13), "9 records from 4 on"),
        (4, -1, [], "-1 records"),
        (4, 2, [4, 5, 6], "bytes to a request"),
    ],
)
async def test_an_answer_that_is_not_what_was_asked_for_is_refused(
    first: int, count: int, places: Iterable[int], match: str
) -> None:
    node = node_with_records("a:1", 20)
    link = _Answers(node, (first, count, stored(node, places)))
    with pytest.raises(WrongRecordsError, match=match):
        await read_records(link, wanted(4, 8), ListRequestSize())


async def test_an_answer_of_more_bytes_than_asked_for_is_refused() -> None:
    node = node_with_records("a:1", 20)
    link = _Answers(node, (4, 5, stored(node, range(4, 9))))
    with pytest.raises(WrongRecordsError, match="to a request for 40"):
        await read_records(link, wanted(4, 8, 40), ListRequestSize())


async def test_a_stored_record_that_is_damaged_is_asked_for_in_the_form_that_the_node_checks() -> None:
    node = node_with_records("a:1", 20)
    bad = bytearray(stored(node, range(4, 9)))
    bad[24] ^= 1  # the header, which the checksum of the data leaves out
    run = await read_records(_Answers(node, (4, 5, bytes(bad))), wanted(4, 8), ListRequestSize())
    assert node.calls == ["list"]
    assert run.records == [stored_of_record(node.log[4])]
    node.refuse = lambda kind, _: "transaction 4: the stored record is damaged" if kind == "list" else None
    with pytest.raises(Exception, match="stored record is damaged"):
        await read_records(_Answers(node, (4, 5, bytes(bad))), wanted(4, 8), ListRequestSize())


@pytest.mark.parametrize("version", [0, 1])
async def test_safety_d11_records_of_another_partition_are_refused(version: int) -> None:
    node = node_with_records("a:1", 20)
    node.log = [record[:16] + b"\0\0\0\7" + record[20:] for record in node.log]
    with pytest.raises(WrongRecordsError, match="record 0 is one of partition 7"):
        await read_records(link_to(node, version), wanted(0, 3), ListRequestSize())


@pytest.mark.parametrize("version", [0, 1])
async def test_safety_d11_no_replica_is_asked_for_more_than_it_has_acknowledged(version: int) -> None:
    """It may have more: what it has not acknowledged in this session is nobody's business."""
    node = node_with_records("a:1", 20)
    router = Router(0, 0, ListRequestSize())
    sources = {"a:1": Source(link_to(node, version), 9)}
    for _ in range(6):
        run = await router.read(sources, 6, 10, MIB, committed=15)
        assert run.last <= 9
    assert run.last == 9


async def test_safety_d11_a_replica_that_is_behind_or_out_is_not_asked() -> None:
    async with Cluster() as cluster:
        for node in cluster.nodes.values():
            node.version = 1
        cluster.nodes["b:1"].up = False
        server = cluster.server()
        await server.opened()
        await server.append(entries(20))
        nodes = cluster.nodes.values()
        await until(lambda: sum(node.max_txid == 19 for node in nodes) == 2)
        cluster.nodes["c:1"].log[5:] = []  # it has lost what it acknowledged
        for node in nodes:
            node.calls.clear()
        for _ in range(6):
            assert len(await server.store.read(5, 10)) == 10
        assert "range" not in cluster.nodes["b:1"].calls
        assert "range" in cluster.nodes["a:1"].calls


@pytest.mark.parametrize("versions", [(1, 1, 1), (0, 1, 1), (1, 0, 0), (1, 0, 1)])
async def test_a_replica_far_behind_is_filled_whatever_versions_the_nodes_speak(
    versions: tuple[int, int, int],
) -> None:
    """Down while the others take 900 records: recovery fills it, then it catches up, in both forms."""
    settings = StoreSettings(catch_up_batch_records=20, replica_backlog_bytes=500)
    async with Cluster() as cluster:
        for node, version in zip(cluster.nodes.values(), versions, strict=True):
            node.version = version
        behind = cluster.nodes["c:1"]
        server = cluster.server(settings=settings)
        await server.opened()
        await server.append(entries(30))
        behind.kill()
        await server.append(entries(300))
        behind.start()
        behind.delay_seconds = 0.05
        for _ in range(60):
            await server.append(entries(10))
        behind.delay_seconds = 0.0
        await until(lambda: behind.max_txid == 929, 200)
        cluster.check_equal(929)
        assert (behind.committed > 0) == bool(versions[2])


def test_a_run_has_both_forms() -> None:
    node = node_with_records("a:1", 4)
    of_wire = RecordRun.of_wire(0, node.log)
    data = stored(node, range(4))
    of_stored = RecordRun.of_stored(0, data, cut_stored(data, 0, 0, 0, 3, 4))
    assert (of_wire.count, of_wire.last, of_stored.count, of_stored.last) == (4, 3, 4, 3)
    assert of_wire.stored == of_stored.stored == data
    assert of_wire.wire == of_stored.wire == b"".join(node.log)
    assert of_wire.records == of_stored.records


async def test_safety_d1_a_copy_carries_the_committed_mark_and_no_more() -> None:
    """While later records have a number only: one of the other two has not stored them."""
    async with Cluster() as cluster:
        for node in cluster.nodes.values():
            node.version = 1
        settings = StoreSettings(replica_backlog_bytes=100, catch_up_batch_records=5)
        server = cluster.server(settings=settings)
        await server.opened()
        behind, slow = cluster.nodes["c:1"], cluster.nodes["b:1"]
        behind.delay_seconds = 0.3
        for _ in range(20):
            await server.append(entries(5))
        slow.delay_seconds = 1.5
        server.store.append(entries(7))
        await until(lambda: behind.committed >= 0, 200)
        while len(server.listener.committed_entries) < 107:
            assert behind.committed < len(server.listener.committed_entries)
            await asyncio.sleep(0.05)
        await until(lambda: behind.max_txid == 106, 200)


async def test_a_range_that_a_node_cannot_read_is_asked_for_as_a_list() -> None:
    """One unreadable record must not hide those before it; a fence is a refusal of all."""
    node = node_with_records("a:1", 20)
    node.refuse = lambda kind, _: "the index is damaged" if kind == "range" else None
    assert (await read_records(link_to(node, 1), wanted(0, 9), ListRequestSize())).first == 0
    node.refuse, node.fence = None, 7
    node.calls.clear()
    with pytest.raises(Exception, match="session 0"):
        await read_records(link_to(node, 1), wanted(0, 9), ListRequestSize())
    assert node.calls == ["range"]
