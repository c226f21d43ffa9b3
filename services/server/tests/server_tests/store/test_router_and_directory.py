"""Reads by latency weight, and the connections to storage nodes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from itertools import pairwise
from uuid import UUID

import pytest

from server_tests.store.fakes import FakeLink, FakeNode, entries, entry, practised_size
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.errors import ConnectError, RequestFailedError
from waltz_protocol.types import Endpoint
from waltz_server.store.api import ReadFailedError, StoreSettings
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink, ReplicaUnavailableError
from waltz_server.store.router import Router, Source

pytestmark = pytest.mark.looptime


async def read(
    router: Router, links: Mapping[str, ReplicaLink], first: int, count: int, most_bytes: int
) -> list[bytes]:
    """All that is in a log is acknowledged and committed."""
    sources = {name: Source(link, 1 << 40) for name, link in links.items()}
    return (await router.read(sources, first, count, most_bytes, committed=1 << 40)).records


def node_with_records(name: str, count: int) -> FakeNode:
    node = FakeNode(name)
    node.log = [i.to_bytes(8, "big") + e.req_id + e.tail for i, e in enumerate(entries(count))]
    return node


async def test_slow_replica_gets_fewer_reads() -> None:
    nodes = {name: node_with_records(name, 10) for name in ("a:1", "b:1")}
    nodes["b:1"].delay_seconds = 0.5
    links: dict[str, ReplicaLink] = {name: FakeLink(node, 2.0) for name, node in nodes.items()}
    router = Router(0, 0, practised_size())
    for _ in range(100):
        await read(router, links, 0, 5, 10_000)
    assert nodes["a:1"].calls.count("list") > 90
    assert nodes["b:1"].calls.count("list") >= 1
    assert router.expected_ms("b:1") > router.expected_ms("a:1")


async def test_failing_replica_is_expected_to_be_slow() -> None:
    nodes = {name: node_with_records(name, 10) for name in ("a:1", "b:1")}
    links: dict[str, ReplicaLink] = {name: FakeLink(node, 2.0) for name, node in nodes.items()}
    router = Router(0, 0, practised_size())
    nodes["a:1"].refuse = lambda _kind, _session: "broken"
    assert len(await read(router, links, 0, 5, 10_000)) == 1  # five may have been too large for an answer
    assert router.expected_ms("a:1") > 1000
    nodes["b:1"].refuse = lambda _kind, _session: "broken too"
    with pytest.raises(ReadFailedError, match="broken too"):
        await read(router, links, 0, 5, 10_000)


async def test_gap_and_short_answers_are_noticed() -> None:
    node = node_with_records("a:1", 10)
    link: dict[str, ReplicaLink] = {"a:1": FakeLink(node, 2.0)}
    router = Router(0, 0, practised_size())
    with pytest.raises(ReadFailedError, match="no record 10"):
        await read(router, link, 10, 1, 10_000)
    del node.log[3]
    with pytest.raises(ReadFailedError, match="record 4 instead of 3"):
        await read(router, link, 2, 5, 10_000)


def directory(open_link: object) -> ReplicaDirectory:
    return ReplicaDirectory(open_link, settings=StoreSettings(), rng=random.Random(1))  # type: ignore[arg-type]


async def test_directory_shares_one_connection_and_one_attempt() -> None:
    node = FakeNode("a:1")
    attempts = 0

    async def open_link(_endpoint: Endpoint) -> ReplicaLink:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0.1)
        return FakeLink(node, 2.0)

    nodes = directory(open_link)
    links = await asyncio.gather(*(nodes.get("a:1") for _ in range(10)))
    assert attempts == 1
    assert len({id(link) for link in links}) == 1
    links[0].close()
    assert await nodes.get("a:1") is not links[0]
    assert attempts == 2
    await nodes.close()
    with pytest.raises(ReplicaUnavailableError):
        await nodes.get("a:1")


async def test_directory_backs_off_per_node() -> None:
    times: list[float] = []

    async def refuse(_endpoint: Endpoint) -> ReplicaLink:
        times.append(asyncio.get_running_loop().time())
        raise ConnectError("connection refused")

    nodes = directory(refuse)

    async def caller() -> None:
        while asyncio.get_running_loop().time() < 100:
            try:
                await nodes.get("a:1")
            except ReplicaUnavailableError:
                await asyncio.sleep(0.01)

    await asyncio.gather(*(caller() for _ in range(20)))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert 0.05 < gaps[0] < 0.2
    assert 10 < gaps[-1] < 25
    assert len(times) < 20


async def test_directory_reports_connectivity_and_wrong_clusters() -> None:
    node = FakeNode("a:1")

    async def open_link(endpoint: Endpoint) -> ReplicaLink:
        if endpoint.host == "b":
            raise RequestFailedError("cluster key does not match")
        return FakeLink(node, 2.0)

    nodes = directory(open_link)
    assert await nodes.check_connectivity(["a:1", "b:1", "no port"]) == {
        "a:1": True,
        "b:1": False,
        "no port": False,
    }
    with pytest.raises(ReplicaUnavailableError, match="cluster key"):
        await nodes.get("b:1")


async def test_connectivity_is_answered_at_once_while_a_node_that_failed_is_not_due_yet() -> None:
    """Those who ask have a second or two; the back-off may be twenty."""
    loop = asyncio.get_running_loop()

    async def refuse(_endpoint: Endpoint) -> ReplicaLink:
        raise ConnectError("connection refused")

    nodes = directory(refuse)
    for _ in range(12):
        with pytest.raises(ReplicaUnavailableError):
            await nodes.get("a:1")
        await asyncio.sleep(0.001)  # who asks in the same moment shares the outcome of the try
    asked = loop.time()
    assert await nodes.check_connectivity(["a:1"]) == {"a:1": False}
    assert loop.time() - asked < 0.1


async def test_connectivity_of_a_node_that_failed_is_asked_again_when_it_is_due() -> None:
    """What is known of it is no longer than its back-off, and a connection that is open is an answer."""
    node, refused, tried = FakeNode("a:1"), True, 0

    async def open_link(_endpoint: Endpoint) -> ReplicaLink:
        nonlocal tried
        tried += 1
        if refused:
            raise ConnectError("connection refused")
        return FakeLink(node, 2.0)

    nodes = directory(open_link)
    assert await nodes.check_connectivity(["a:1"]) == {"a:1": False}
    refused = False
    await asyncio.sleep(0.001)
    assert await nodes.check_connectivity(["a:1"]) == {"a:1": False}, "it is not due yet"
    assert tried == 1
    known = nodes._nodes["a:1"]
    await asyncio.sleep(known.not_before - asyncio.get_running_loop().time())
    assert await nodes.check_connectivity(["a:1"]) == {"a:1": True}
    known.not_before = asyncio.get_running_loop().time() + 20.0
    assert await nodes.check_connectivity(["a:1"]) == {"a:1": True}, "it is connected"
    assert tried == 2


async def test_an_answer_beyond_the_byte_limit_is_cut() -> None:
    node = node_with_records("a:1", 10)
    link: dict[str, ReplicaLink] = {"a:1": FakeLink(node, 2.0)}
    one = len(node.log[0])
    router = Router(0, 0, practised_size())
    assert len(await read(router, link, 0, 10, 3 * one)) == 3
    assert len(await read(router, link, 0, 10, 3 * one)) == 3  # and it has learnt how many to ask for


def node_with_sizes(name: str, sizes: list[int], largest_frame: int) -> FakeNode:
    """A node of release 0.13.2: it puts as many records into an answer as were asked for."""
    node = FakeNode(name)
    node.log = [i.to_bytes(8, "big") + e.req_id + e.tail for i, e in enumerate(map(entry, sizes))]
    node.largest_frame = largest_frame
    return node


async def read_all(router: Router, nodes: list[FakeNode]) -> None:
    links: dict[str, FakeLink] = {}
    place, end = 0, len(nodes[0].log)
    while place < end:
        for node in nodes:
            if node.name not in links or links[node.name].closed:
                links[node.name] = FakeLink(node, 2.0)
        place += len(await read(router, dict(links), place, end - place, 1024 * 1024))


async def test_consecutive_large_records_never_end_a_connection() -> None:
    """Before, 20 records were asked for at first and after every failure, so that no replica could ever be
    read."""
    node = node_with_sizes("a:1", [400_000] * 40, largest_frame=4_000_000)
    await read_all(Router(0, 0, ListRequestSize()), [node])
    assert node.overlong == 0


async def test_large_records_after_small_ones_end_one_connection_at_most() -> None:
    """Before, the size asked for after small records was asked of every replica, again and again."""
    sizes = [8] * 2000 + [100_000] * 300
    nodes = [node_with_sizes(name, sizes, largest_frame=8_000_000) for name in ("a:1", "b:1", "c:1")]
    await read_all(Router(0, 0, ListRequestSize()), nodes)
    assert sum(node.overlong for node in nodes) <= 1


async def test_requests_for_small_records_reach_full_size_after_a_few_round_trips() -> None:
    node = node_with_sizes("a:1", [8] * (256 * 11), largest_frame=64 * 1024 * 1024)
    await read_all(Router(0, 0, ListRequestSize()), [node])
    assert node.calls.count("list") <= 8 + 11


async def test_a_reader_that_gives_up_counts_as_a_failure() -> None:
    node = node_with_sizes("a:1", [8] * 100, largest_frame=64 * 1024 * 1024)
    size = ListRequestSize()
    router = Router(0, 0, size)
    link = FakeLink(node, 2.0)
    for _ in range(4):
        await read(router, {"a:1": link}, 0, 100, 1024 * 1024)
    assert size.ask(100, 1024 * 1024) == 16
    node.delay_seconds = 1.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await read(router, {"a:1": link}, 0, 100, 1024 * 1024)
    assert size.ask(100, 1024 * 1024) == 1


async def test_without_a_replica_nothing_is_read() -> None:
    with pytest.raises(ReadFailedError, match="no replica has it"):
        await read(Router(0, 0, ListRequestSize()), {}, 0, 1, 1000)


async def test_a_connection_that_opens_while_the_server_closes_is_closed() -> None:
    node = FakeNode("a:1")
    opened: list[FakeLink] = []

    async def open_link(_endpoint: Endpoint) -> ReplicaLink:
        await asyncio.sleep(1)
        opened.append(FakeLink(node, 2.0))
        return opened[0]

    directory = ReplicaDirectory(open_link, settings=StoreSettings(), rng=random.Random(0))
    asked = spawn(directory.get("a:1"), "asks")
    await asyncio.sleep(0.5)
    await directory.close()
    with pytest.raises(ReplicaUnavailableError, match="closing"):
        await asked
    assert opened[0].closed


async def test_the_directory_of_a_real_server_opens_storage_connections() -> None:
    directory = ReplicaDirectory.for_cluster(
        cluster_key=UUID(int=1),
        num_partitions=1,
        tls=None,
        settings=StoreSettings(connect_timeout_seconds=0.5),
        rng=random.Random(0),
    )
    with pytest.raises(ReplicaUnavailableError, match=r"^cannot connect to 127\.0\.0\.1:1: "):
        await directory.get("127.0.0.1:1")
    await directory.close()
