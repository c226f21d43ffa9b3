"""What a server reports about clients, locks and latency: right, bounded, and nothing on the way of an append
that meets nobody."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from server_tests.registry_on_nodes import registry_on
from server_tests.store.fakes import PARTITION, Cluster, entries, entry, until
from waltz_protocol.messages.client import (
    FeedData,
    FeedRequest,
    LockFailure,
    MountRequest,
    MountResponse,
    ServerReportRequest,
    ServerReportResponse,
)
from waltz_protocol.types import ReqId
from waltz_server import report
from waltz_server.partition import contention
from waltz_server.partition.contention import Contended, Waiting
from waltz_server.store.api import ReplicaPhase
from waltz_testkit.client_peers import FakeClient, RawPeer
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import PartitionRig

LOCK, OTHER = 5, 6


async def test_a_refused_append_is_booked_on_its_lock_with_who_won() -> None:
    async with PartitionRig() as rig:
        winner, loser = FakeClient(1), FakeClient(2)
        for client in (winner, loser):
            await rig.mount(client)
        rig.append(winner, write=(LOCK,))
        await rig.turns()
        refused = rig.append(loser, write=(OTHER, LOCK), hwm=-1)
        await rig.turns()
        assert loser.of(LockFailure) == [LockFailure(refused, 0)]
        found = rig.partition.contention
        assert found.refused_appends == 1
        assert found.locks() == {LOCK: Contended(conflicts=1, transaction=0, winner=1, loser=2)}
        assert {pair: one.conflicts for pair, one in found.pairs().items()} == {(LOCK, 1, 2): 1}


async def test_who_waits_for_whom_is_known_while_it_waits() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        clients = [FakeClient(number) for number in (1, 2, 3)]
        for client in clients:
            await rig.mount(client)
        for client in clients:
            rig.append(client, append=(LOCK,))
        rig.append(clients[0], append=(OTHER,))
        await rig.turns()
        found = rig.partition.contention
        assert found.waiting(10) == [Waiting(LOCK, 1, (2, 3), 2)]
        assert found.locks() == {LOCK: Contended(waits=2)}
        for _ in range(3):
            rig.store.commit_next()
            await rig.turns()
        assert found.waiting(10) == []
        assert found.refused_appends == 0


async def test_an_append_that_meets_nobody_leaves_nothing_behind() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        clients = [FakeClient(number) for number in (1, 2)]
        for client in clients:
            await rig.mount(client)
        for number in range(50):
            rig.append(clients[number % 2], write=(100 + number,), read=(1000 + number,))
        await rig.turns()
        rig.store.commit_next()
        await rig.turns()
        assert rig.partition.contention.locks() == {}


async def test_the_most_contended_lock_is_kept_among_very_many() -> None:
    """`MAX_LOCKS` entries, whatever comes; the count of the hot one is right to within `over`."""
    async with PartitionRig() as rig:
        writer, loser = FakeClient(1), FakeClient(2)
        for client in (writer, loser):
            await rig.mount(client)
        many = 3 * contention.MAX_LOCKS
        for number in range(many):
            rig.append(writer, append=(1000 + number,))
        rig.append(writer, append=(LOCK,))
        await rig.turns()
        for number in range(many):
            rig.append(loser, write=(1000 + number,), hwm=-1)
            rig.append(loser, write=(LOCK,), hwm=-1)
            await rig.turns()
        found = rig.partition.contention
        assert len(found.locks()) == len(found.pairs()) == contention.MAX_LOCKS
        hot = found.locks()[LOCK]
        assert (hot.conflicts, hot.over) == (many, 1 if hot.over else 0)
        assert max(found.locks().values(), key=lambda one: one.met) is hot
        assert found.refused_appends == 2 * many


async def ask(
    peer: RawPeer, parts: int = report.ALL_PARTS, partition: int = report.ALL_PARTITIONS
) -> dict[str, Any]:
    peer.send(ServerReportRequest(ReqId(-1, 0, partition, 0), parts))
    while True:
        message = await peer.read()
        if isinstance(message, ServerReportResponse):
            found = json.loads(message.json or "")
            assert isinstance(found, dict)
            return found


async def test_clients_are_listed_with_what_they_follow_and_how_far_behind_they_are() -> None:
    async with LoopbackServer({0: 1, 3: 1}) as server:
        tool, reader, writer = [await server.peer() for _ in range(3)]
        for number, peer in ((1, reader), (2, writer)):
            peer.send(MountRequest(ReqId(number, 1, 3, 0), -1, 1))
            await peer.read_until(lambda one: isinstance(one, MountResponse))
        reader.send(FeedRequest(ReqId(1, 1, 3, 0), -1))
        for number in range(5):
            writer.append(ReqId(2, 1, 3, 1 + number))
        await reader.read_until(lambda one: isinstance(one, FeedData) and one.transaction_id == 4)
        found = await ask(tool)
        assert found["format"] == report.FORMAT
        assert found["clients"]["connections"] == 3
        rows = {row["client"]: row for row in found["clients"]["rows"]}
        assert sorted(rows) == [1, 2]
        assert rows[1]["address"].startswith("127.0.0.1:")
        assert (rows[1]["version"], rows[1]["mounted"], rows[1]["partitions"]) == (4, 1, "3")
        assert rows[1]["furthest"] == [{"partition": 3, "sent": 4, "behind": 0, "state": "up to date"}]
        assert (rows[2]["mounted"], rows[2]["following"], rows[2]["unsent_bytes"]) == (1, 0, 0)
        assert found["locks"] == {"refused": 0, "rows": [], "pairs": [], "waiting": []}
        assert [row["client"] for row in (await ask(tool, report.CLIENTS, 3))["clients"]["rows"]] == [1]
        assert (await ask(tool, report.CLIENTS, 0))["clients"]["rows"] == []
        latency = found["latency"]
        assert latency["count"] == latency["at_most"][-1] == 5
        assert latency["partitions"]["3"][0] == 5


async def test_a_client_that_asks_for_no_more_is_known_to_be_behind() -> None:
    """Its credit is used up, and it does not ask again: the slow client that a partition's owner looks
    for."""
    async with PartitionRig() as rig:
        slow, writer = FakeClient(1), FakeClient(2)
        for client in (slow, writer):
            await rig.mount(client)
        rig.feed(slow, -1)
        for _ in range(130):
            rig.append(writer)
        await rig.turns()
        assert list(rig.partition.followers()) == [(slow, 99, False)]
        assert report._state(slow, 30, False) == "asks for no more"
        rig.partition.client_closed(slow)
        assert list(rig.partition.followers()) == []


async def test_only_what_is_asked_for_is_reported() -> None:
    async with LoopbackServer({0: 1}) as server:
        tool = await server.peer()
        assert set(await ask(tool, report.LOCKS)) == {"format", "locks"}
        assert set(await ask(tool, report.LATENCY)) == {"format", "latency"}
        assert set(await ask(tool, 0)) == {"format"}


async def test_the_load_has_what_each_partition_caused_and_since_when_all_are_here() -> None:
    async with LoopbackServer({0: 1, 3: 1}) as server:
        tool, reader, writer = [await server.peer() for _ in range(3)]
        for number, peer in ((1, reader), (2, writer)):
            peer.send(MountRequest(ReqId(number, 1, 3, 0), -1, 1))
            await peer.read_until(lambda one: isinstance(one, MountResponse))
        for number in (1, 2):  # two feeds of one client: what both want is sent once
            reader.send(FeedRequest(ReqId(1, 1, 3, number), -1))
        for number in range(5):
            writer.append(ReqId(2, 1, 3, 1 + number))
        await reader.read_until(lambda one: isinstance(one, FeedData) and one.transaction_id == 4)
        appends, size_bytes, fed = (meter.count for meter in server.registry.partitions[3].causes)
        assert (appends, fed) == (5, 5)
        assert size_bytes > 0
        found = (await ask(tool, report.LOAD))["load"]
        assert set(found) == {"measured_seconds", "cpu", "partitions"}
        assert len(found["cpu"]) == 3
        # the clock of this rig's metrics began at 0: the first tick is an average since then
        assert [[len(one) for one in rows] for rows in found["partitions"].values()] in ([], [[3] * 3])
        assert "0" not in found["partitions"], "an idle one"


async def test_reports_are_bounded_by_their_names_and_not_by_the_cluster(monkeypatch: Any) -> None:
    monkeypatch.setattr(report, "MAX_CLIENTS", 3)
    async with LoopbackServer({0: 1}) as server:
        peers = [await server.peer() for _ in range(5)]
        for number, peer in enumerate(peers, 1):
            peer.send(MountRequest(ReqId(number, 1, 0, 0), -1, 1))
            await peer.read_until(lambda one: isinstance(one, MountResponse))
        found = (await ask(await server.peer()))["clients"]
        assert (len(found["rows"]), found["left_out"], found["connections"]) == (3, 2, 6)


async def test_a_client_that_asks_again_before_the_answer_is_closed_and_the_others_are_answered() -> None:
    async with LoopbackServer({0: 1}) as server:
        greedy, modest = await server.peer(), await server.peer()
        await ask(modest)  # the desk rests now
        for _ in range(2):
            greedy.send(ServerReportRequest(ReqId(-1, 0, 0, 0), 0))
        assert await greedy.closed_by_server()
        async with asyncio.timeout(5.0):
            assert await ask(modest, 0) == {"format": report.FORMAT}


async def fork_one(cluster: Cluster) -> None:
    """The last record of c:1 is another one than that of the others."""
    server = cluster.server()
    await server.opened()
    await server.append(entries(5))
    await until(lambda: all(node.max_txid == 4 for node in cluster.nodes.values()))
    await server.crash()
    node = cluster.nodes["c:1"]
    node.log[4] = node.log[4][:8] + entry().req_id + node.log[4][24:]


@pytest.mark.looptime
async def test_a_replica_that_the_session_refuses_is_reported_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster() as cluster, registry_on(cluster, 1) as registry:
        await fork_one(cluster)
        registry.adopt({PARTITION: 2})
        partition = registry.partitions[PARTITION]
        await until(lambda: partition.healthy)
        cluster.nodes["b:1"].kill()  # one that is away is seen from outside

        async def reported(parts: int = report.REPLICAS, number: int = report.ALL_PARTITIONS) -> object:
            return (await report.make_report(registry, parts, number)).get("replicas")

        await until(lambda: partition.store.replicas[2].state is ReplicaPhase.REFUSED)
        row = {
            "partition": PARTITION,
            "node": "c:1",
            "reason": "its log differs from that of the other replicas (fork)",
        }
        assert await reported() == {"left_out": 0, "refused": [row]}
        assert await reported(number=PARTITION) == {"left_out": 0, "refused": [row]}
        assert await reported(number=PARTITION + 1) == {"left_out": 0, "refused": []}
        assert await reported(report.ALL_PARTS & ~report.REPLICAS) is None
        monkeypatch.setattr(report, "MAX_REFUSED", 0)
        assert await reported() == {"left_out": 1, "refused": []}
