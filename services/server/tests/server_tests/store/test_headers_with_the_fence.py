"""What a recovery compares comes with the answers that the fence was raised by: no question of its own."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from server_tests.store.fakes import PARTITION, ROOT, Cluster, FakeLink, entries, entry, until
from server_tests.store.test_replica_phases import NoSession
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.errors import RequestTimeoutError
from waltz_protocol.types import UNRESOLVED, Endpoint, PartitionId, RecordHeader
from waltz_server.store.api import StoreSettings, StoreState
from waltz_server.store.metadata_keeper import MetadataKeeper
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Truncate
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink
from waltz_server.store.replica_recovery import MAX_TAIL_RECORDS, ReplicaRecovery, Tail, tail_of
from waltz_server.store.session_context import SessionContext

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((), None),
        ((-1, -1, -1), None),
        ((7, 7, 7), Tail(7, 1)),
        ((7, 5), Tail(5, 3)),
        ((-1, 2, 2), Tail(0, 3)),
        ((0, MAX_TAIL_RECORDS - 1), Tail(0, MAX_TAIL_RECORDS)),
        ((0, MAX_TAIL_RECORDS), None),
    ],
)
def test_the_tail_is_what_replicas_differ_by(ends: tuple[int, ...], expected: Tail | None) -> None:
    assert tail_of(ends) == expected


async def test_a_take_over_compares_without_a_question_of_its_own() -> None:
    async with Cluster() as cluster:
        for node in cluster.nodes.values():
            node.version = 1
        first = cluster.server()
        await first.opened()
        await first.append(entries(20))
        await until(lambda: all(node.max_txid == 19 for node in cluster.nodes.values()))
        await first.crash()
        cluster.nodes["c:1"].log.pop()
        for node in cluster.nodes.values():
            node.calls.clear()
        second = cluster.server(generation=2)
        await second.opened()
        await until(lambda: [r.state for r in second.store.replicas] == ["voting"] * 3)
        cluster.check_equal(19)
        asked = ["info", "max"]
        fenced = ["info", "max", "list"]
        marked = ["set_lwm", "max"]
        lagging = cluster.nodes.pop("c:1")
        assert sorted(lagging.calls) == sorted([*asked, *fenced, "append", *marked])
        source, other = sorted((node.calls for node in cluster.nodes.values()), key=len)
        assert sorted(other) == sorted([*asked, *fenced, *marked, "range"])
        assert sorted(source) == sorted([*asked, *fenced, *marked])


async def test_a_node_of_0_13_2_is_asked_what_it_always_was() -> None:
    async with Cluster() as cluster:
        first = cluster.server()
        await first.opened()
        await first.append(entries(3))
        await until(lambda: all(node.max_txid == 2 for node in cluster.nodes.values()))
        await first.crash()
        for node in cluster.nodes.values():
            node.calls.clear()
        second = cluster.server(generation=2)
        await second.opened()
        for node in cluster.nodes.values():
            assert node.calls[:4] == ["info", "max"] * 2


async def test_a_fork_is_refused_by_the_headers_that_came_with_the_fence() -> None:
    async with Cluster() as cluster:
        for node in cluster.nodes.values():
            node.version = 1
        first = cluster.server()
        await first.opened()
        await first.append(entries(5))
        await until(lambda: all(node.max_txid == 4 for node in cluster.nodes.values()))
        await first.crash()
        fork = cluster.nodes["c:1"]
        fork.log[4] = fork.log[4][:8] + entry().req_id + fork.log[4][24:]
        second = cluster.server(generation=2)
        await second.opened()
        await until(lambda: any("fork" in replica.reason for replica in second.store.replicas))
        assert second.store.state is StoreState.OPEN


async def test_safety_a2_headers_of_a_log_that_changes_are_forgotten() -> None:
    """Another replica may be compared with this one: what was cut, and what is there since, must not be
    mistaken for each other."""
    async with Cluster() as cluster:
        node = cluster.nodes["a:1"]
        node.version = 1
        server = cluster.server()
        await server.opened()
        await server.append(entries(3))
        await until(lambda: all(one.max_txid == 2 for one in cluster.nodes.values()))
        await server.crash()

        async def open_link(endpoint: Endpoint) -> ReplicaLink:
            return FakeLink(cluster.nodes[str(endpoint)], 2.0)

        rng, settings = random.Random(1), StoreSettings()
        keeper = MetadataKeeper(StoreMetadata(cluster.admin, ROOT), PARTITION, rng)
        directory = ReplicaDirectory(open_link, settings=settings, rng=rng)
        context = SessionContext(PARTITION, settings, directory, keeper, rng)
        recovery = Recovery(
            partition_id=PARTITION, session_id=9, replicas=cluster.names, metadata=PartitionMetadata()
        )
        replica = ReplicaRecovery(NoSession(), context, recovery, 9, "a:1", Tail(1, 2))
        link = await replica._connect()
        assert replica.headers_at(0, 1) is None
        headers = replica.headers_at(2, 1)
        assert headers is not None
        assert [header.req_id for header in headers] == [node.txids()[2]]
        await replica._do(link, Truncate(1))
        assert node.max_txid == 1
        assert replica.headers_at(2, 1) is None
        await replica._connect()
        assert replica.headers_at(1, 1) is not None
        link.close()
        assert replica.headers_at(1, 1) is None
        await directory.close()


class Run(NoSession):
    def __init__(self) -> None:
        super().__init__()
        self.members: dict[str, ReplicaRecovery] = {}

    def headers_of(self, name: str, first: int, count: int) -> list[RecordHeader] | None:
        return self.members[name].headers_at(first, count)

    def link_of(self, name: str) -> ReplicaLink | None:
        return self.members[name].link

    def note(self, event: str, **values: str) -> None: ...


async def test_a_copy_that_was_taken_away_since_makes_no_fork_of_a_good_one() -> None:
    """The session waits for its quorum; meanwhile an administrator removes the forked copy and assigns it
    again, while the connection stays. Whoever comes then was refused for the session: as a fork of records
    that nobody holds any longer."""
    async with Cluster() as cluster:
        for one in cluster.nodes.values():
            one.version = 1
        server = cluster.server()
        await server.opened()
        await server.append(entries(3))
        await until(lambda: all(one.max_txid == 2 for one in cluster.nodes.values()))
        session_id = server.store.session_id
        await server.crash()
        bad = cluster.nodes["a:1"]
        bad.log[2] = bad.log[2][:8] + entry().req_id + bad.log[2][24:]

        async def open_link(endpoint: Endpoint) -> ReplicaLink:
            return FakeLink(cluster.nodes[str(endpoint)], 2.0)

        rng, settings = random.Random(1), StoreSettings()
        keeper = MetadataKeeper(StoreMetadata(cluster.admin, ROOT), PARTITION, rng)
        directory = ReplicaDirectory(open_link, settings=settings, rng=rng)
        context = SessionContext(PARTITION, settings, directory, keeper, rng)
        states = {
            name: ReplicaState(PartitionId(PARTITION), name, session_id, UNRESOLVED) for name in cluster.names
        }
        recovery = Recovery(
            partition_id=PARTITION,
            session_id=session_id + 1,
            replicas=cluster.names,
            metadata=PartitionMetadata(1, session_id + 1, states),
        )
        run = Run()
        for name in cluster.names:
            run.members[name] = ReplicaRecovery(run, context, recovery, session_id + 1, name, Tail(2, 1))
        await run.members["a:1"]._connect()
        bad.rebuild()
        link = await run.members["b:1"]._connect()
        await run.members["b:1"]._compare(link, "a:1", 2, 2)
        await directory.close()
        assert recovery._replicas["b:1"].refused is None


class Linked(NoSession):
    """Connected to these nodes, and nothing came with the fence."""

    def __init__(self, links: Mapping[str, ReplicaLink]) -> None:
        super().__init__()
        self._links = links

    def link_of(self, name: str) -> ReplicaLink | None:
        return self._links[name]


@pytest.mark.parametrize("records", [2, 3, 8])
async def test_a_reference_that_answers_nothing_is_reported_and_its_replica_is_not_blamed(
    records: int,
) -> None:
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(records))
        await until(lambda: all(node.max_txid == records - 1 for node in cluster.nodes.values()))
        session_id = server.store.session_id
        assert session_id is not None
        await server.crash()
        links = {name: FakeLink(cluster.nodes[name], 2.0) for name in ("a:1", "b:1")}
        cluster.nodes["a:1"].refuse = lambda kind, _: "io error" if kind == "list" else None
        failed: list[tuple[str, str]] = []
        recovery: Any = SimpleNamespace(reference_failed=lambda name, other: failed.append((name, other)))
        context: Any = SimpleNamespace(partition_id=PARTITION)
        replica = ReplicaRecovery(Linked(links), context, recovery, session_id + 1, "b:1")
        await replica._compare(links["b:1"], "a:1", 0, records - 1)
        assert failed == [("b:1", "a:1")]


async def test_a_slow_answer_in_a_long_comparison_costs_that_answer_only() -> None:
    """Long lists of headers can take more than an answer may: shorter ones are asked for, from there on."""
    async with Cluster() as cluster:
        server = cluster.server()
        await server.opened()
        await server.append(entries(40))
        await until(lambda: all(node.max_txid == 39 for node in cluster.nodes.values()))
        session_id = server.store.session_id
        assert session_id is not None
        await server.crash()
        links = {name: FakeLink(cluster.nodes[name], 2.0) for name in ("a:1", "b:1")}
        asked: list[tuple[int, int]] = []
        real = links["b:1"].record_header_list

        async def slow(session: int, partition: int, first: int, count: int) -> list[RecordHeader]:
            asked.append((first, count))
            if first >= 10 and count > 4:
                raise RequestTimeoutError("too slow")
            return (await real(session, partition, first, count))[:10]

        links["b:1"].record_header_list = slow  # type: ignore[method-assign,assignment]
        run, told = Linked(links), list[bool]()
        recovery: Any = SimpleNamespace(compared=lambda _name, _reference, *, equal: told.append(equal))
        context: Any = SimpleNamespace(partition_id=PARTITION)
        await ReplicaRecovery(run, context, recovery, session_id + 1, "b:1")._compare(
            links["b:1"], "a:1", 0, 39
        )
        assert told == [True]
        assert [first for first, _ in asked] == sorted(first for first, _ in asked), "nothing is read twice"
