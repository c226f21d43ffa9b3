"""What a console observes, when, and what its pages make of it."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tools_tests.console_rig import Source, cluster, console
from waltz_admin.cluster_status import ClusterStatus, PartitionStatus
from waltz_admin.errors import UnreachableError
from waltz_admin.reports import ServerReport
from waltz_cluster.replica_rules import Standing
from waltz_tools.cli import status_page
from waltz_tools.console.collector import (
    LEAST_REST,
    LINGER_SECONDS,
    MAX_REST_SECONDS,
    PROMPT_SECONDS,
    REST,
    Collector,
    Observation,
)
from waltz_tools.console.history import changes, rates
from waltz_tools.console.pages import overview, partition_row


def partition(status: ClusterStatus, number: int, **fields: object) -> ClusterStatus:
    """The same state with one partition changed."""
    found: list[PartitionStatus] = list(status.partitions)
    found[number] = replace(found[number], **fields)  # type: ignore[arg-type]
    return replace(status, partitions=tuple(found))


# ---- two observations


def test_rates_are_those_of_the_newest_stored_transactions() -> None:
    before, after = cluster(2, last=100), cluster(2, last=150)
    found = rates(before, after, 5.0)
    assert found.partitions == {0: 10.0, 1: 10.0}
    assert found.total == 20.0
    assert found.copies["a:1", 0] == 10.0
    assert rates(None, after, 5.0).total == rates(before, after, 0.0).total == 0.0
    assert rates(after, before, 5.0).total == 0.0, "a log that became shorter is no negative rate"


def test_a_rate_is_that_of_copies_that_voted_and_answered_both_times() -> None:
    """After a moment without an answer, or with one of a copy that is refilled only, a log is not new."""
    silent, before, after = cluster(1, last=None), cluster(1, last=1_000), cluster(1, last=1_010)
    assert rates(before, silent, 2.0).partitions == rates(silent, after, 2.0).partitions == {}
    assert rates(silent, after, 2.0).total == 0.0
    a, b, c = before.partitions[0].replicas
    away = [replace(one, last_transaction=None) for one in (a, b)]
    filled = replace(c, last_transaction=4, standing=Standing.INCOMPLETE)
    found = rates(partition(before, 0, replicas=(*away, filled)), after, 2.0)
    assert (found.partitions, found.copies) == ({}, {("c:1", 0): 503.0})
    found = rates(partition(before, 0, replicas=(a, away[1], filled)), after, 2.0)
    assert found.partitions == {0: 5.0}
    empty = cluster(1, last=-1)
    assert rates(empty, cluster(1, last=9), 2.0).partitions == {0: 5.0}, "an empty log is known"


async def test_top_shows_no_rate_after_a_moment_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = [cluster(1, last=1_000), cluster(1, last=None), cluster(1, last=1_010)]
    shown: list[object] = []

    async def observe(*_: object, **__: object) -> ClusterStatus:
        return observed.pop(0)

    async def ask(*_: object, **__: object) -> list[ServerReport]:
        return []

    monkeypatch.setattr(status_page, "read_status", observe)
    monkeypatch.setattr(status_page, "read_reports", ask)
    context: Any = SimpleNamespace(store=None, root="/root", tls=None)
    await status_page.live(context, 0.0, 3, lambda listings, _: shown.append(listings[-1].rows[0][6]))
    assert shown == [0.0, 0.0, 0.0]


def test_what_changed_is_said_once_for_all_partitions() -> None:
    well, behind = cluster(1000), cluster(1000, standing=Standing.BEHIND)
    assert changes(None, well, 1.0) == changes(well, well, 1.0) == []
    (one,) = changes(well, behind, 1.0)
    assert (one.text, one.bad) == ("c:1, partitions 0-999: behind, it was current", True)
    (back,) = changes(behind, well, 1.0)
    assert (back.text, back.bad) == ("c:1, partitions 0-999: current, it was behind", False)


def test_owners_sessions_and_writes() -> None:
    before = cluster(4)
    moved = partition(before, 2, server=before.partitions[1].server, generation=4, session_id=6)
    texts = [one.text for one in changes(before, moved, 1.0)]
    assert texts == [
        "partition 2: assigned to server-1:7, it came from server-0:7",
        "partition 2: a new store session began",
    ]
    closed = partition(before, 3, healthy=False, problem="why", server=None)
    found = changes(before, closed, 1.0)
    assert [(one.text, one.bad) for one in found] == [
        ("partition 3: no server has it, it was on server-1:7", False),
        ("partition 3: no writes: why", True),
    ]
    assert changes(closed, before, 1.0)[1].text == "partition 3: takes writes again"


def test_partitions_that_cannot_be_asked_about_are_not_called_closed() -> None:
    before = cluster(4)
    unknown = partition(before, 3, healthy=False, unknown=True, problem="TLS")
    (found,) = changes(before, unknown, 1.0)
    assert (found.text, found.bad) == ("partition 3: not known whether it takes writes: TLS", False)
    closed = partition(before, 3, healthy=False, problem="why")
    assert changes(unknown, closed, 1.0)[0].text == "partition 3: no writes: why"
    seen = Observation(1, 1.0, 0.1, unknown, (), rates(None, unknown, 1.0))
    assert overview(seen, [], [])["partitions"] == {"all": 4, "closed": 0, "unknown": 1, "reduced": 0}
    assert partition_row(seen, unknown.partitions[3])["writes"] is None


def test_members_come_and_go() -> None:
    before = cluster(2)
    alone = replace(before, servers=before.servers[:1], nodes=before.nodes[:2])
    texts = [one.text for one in changes(before, alone, 1.0)]
    assert texts == ["server server-1:7 is no longer registered", "storage node c:1 is no longer registered"]
    texts = [one.text for one in changes(alone, before, 1.0)]
    assert texts == ["server server-1:7 is registered", "storage node c:1 is registered"]
    silent = replace(before, nodes=(replace(before.nodes[0], error="gone"), *before.nodes[1:]))
    assert [one.text for one in changes(before, silent, 1.0)] == ["storage node a:1 does not answer"]
    assert [one.text for one in changes(silent, before, 1.0)] == ["storage node a:1 answers again"]


# ---- when it is asked


@pytest.mark.looptime
async def test_the_cluster_is_asked_only_while_somebody_watches() -> None:
    source, work = Source(), 0.0
    loop = asyncio.get_running_loop()
    collector = Collector(
        source.observe,
        interval_seconds=2.0,
        clock=loop.time,
        wall_clock=loop.time,
        work_clock=lambda: work,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(collector.run())
        await asyncio.sleep(100)
        assert source.asked == 0
        collector.watch()
        await asyncio.sleep(LINGER_SECONDS + 10)
        asked = source.asked
        assert 7 <= asked <= 9, "every two seconds, for as long as a viewer lingers"
        await asyncio.sleep(1000)
        assert source.asked == asked
        seen = await collector.fresh(1.0)
        assert source.asked == asked + 1, "at once, for who comes back"
        assert seen is not None
        assert seen.number == asked + 1
        task.cancel()


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("work_each", "pause"),
    [(0.0, 2.0), (0.06, 0.06 * REST), (0.2, PROMPT_SECONDS), (1.0, LEAST_REST), (60.0, MAX_REST_SECONDS)],
)
async def test_a_cluster_that_is_much_work_is_asked_less_often(work_each: float, pause: float) -> None:
    loop = asyncio.get_running_loop()
    times, work = [], 0.0

    async def observe() -> ClusterStatus:
        nonlocal work
        times.append(loop.time())
        work += work_each
        return cluster(1)

    collector = Collector(
        observe, interval_seconds=2.0, clock=loop.time, wall_clock=loop.time, work_clock=lambda: work
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(collector.run())
        while len(times) < 4:
            collector.watch()
            await asyncio.sleep(1.0)
        assert times[3] - times[2] == pytest.approx(pause)
        task.cancel()


async def test_an_error_in_place_of_a_cancellation_ends_it_too() -> None:
    """As a connection to ZooKeeper that is closed while it is opened raises one."""
    begun = asyncio.Event()

    async def observe() -> ClusterStatus:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("cannot close what is not open") from None
        return cluster(1)

    loop = asyncio.get_running_loop()
    collector = Collector(
        observe, interval_seconds=0.01, clock=loop.time, wall_clock=loop.time, work_clock=lambda: 0.0
    )
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(collector.run())
        collector.watch()
        await begun.wait()
        task.cancel()


async def test_it_lives_on_without_the_cluster_and_says_why() -> None:
    source = Source(UnreachableError("ZooKeeper did not answer within 16 s"))
    async with console(source) as rig:
        status, body = await rig.get("/api/overview")
        assert (status, body) == (503, {"error": "ZooKeeper did not answer within 16 s"})
        source.now = cluster(2)
        while not rig.collector.latest:
            rig.collector.watch()
            await rig.collector.changed(rig.collector.number, 5.0)
        assert (await rig.page("/api/overview"))["cluster"] == "a cluster"
        source.now = RuntimeError("a defect\nin two lines")
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        page = await rig.page("/api/overview")
        state = page["state"]
        assert isinstance(state, dict)
        assert state["error"] == "a defect in two lines"
        assert state["failing_since"] == 1000.0
        assert page["partitions"] == {"all": 2, "closed": 0, "unknown": 0, "reduced": 0}, (
            "what was seen last stays"
        )
        source.now = cluster(2)
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        assert rig.collector.error == ""


async def test_it_lives_on_when_an_observation_cannot_be_evaluated() -> None:
    """As with a number that no float holds, of a source that does not refuse it."""
    async with console(Source(cluster(2))) as rig:
        await rig.page("/api/overview")
        seen, changed = rig.collector.latest, len(rig.collector.changes)
        rig.source.now = cluster(2, last=10**400, standing=Standing.BEHIND)
        for _ in range(2):
            await rig.collector.changed(rig.collector.number + 1, 5.0)
        state = (await rig.page("/api/overview"))["state"]
        assert isinstance(state, dict)
        assert "too large" in state["error"]
        assert rig.collector.latest is not None
        assert seen is not None
        assert rig.collector.latest.status == seen.status
        assert len(rig.collector.changes) == changed, "what was not kept is no change, however often it came"
        rig.source.now = cluster(2, last=200)
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        assert rig.collector.error == ""


async def test_hundred_viewers_cost_what_one_costs() -> None:
    async with console() as rig:
        await rig.page("/api/partitions")
        rig.collector._interval_seconds = 1000.0
        await rig.collector.changed(rig.collector.number, 5.0)
        await asyncio.sleep(0)
        asked = rig.source.asked
        bodies = await asyncio.gather(*(rig.page("/api/partitions") for _ in range(100)))
        assert rig.source.asked == asked
        assert all(body == bodies[0] for body in bodies)


# ---- pages


async def test_pages_of_a_thousand_partitions() -> None:
    source = Source(cluster(1000, standing=Standing.BEHIND))
    async with console(source) as rig:
        rows = (await rig.page("/api/partitions"))["rows"]
        assert isinstance(rows, list)
        assert len(rows) == 1000
        assert rows[7] == {
            "id": 7,
            "server": "server-1:7",
            "generation": 3,
            "session": 5,
            "writes": True,
            "current": 2,
            "replicas": [["a:1", "current", 0], ["b:1", "current", 0], ["c:1", "behind", 0]],
            "last": 100,
            "lag": 0,
            "rate": rows[7]["rate"],
            "latency_seconds": None,
            "problem": "c:1 is not current",
        }
        overview = await rig.page("/api/overview")
        assert overview["partitions"] == {"all": 1000, "closed": 0, "unknown": 0, "reduced": 1000}
        assert overview["transactions"] == 101_000
        findings = overview["findings"]
        assert isinstance(findings, list)
        assert [one["rule"] for one in findings] == ["replica-behind"]
        assert (await rig.page("/api/findings"))["counts"] == {"stopped": 0, "reduced": 1, "soon": 0}
        moves = await rig.page("/api/changes")
        assert isinstance(moves["copies"], list)
        assert len(moves["copies"]) == 1000
        nodes = (await rig.page("/api/nodes"))["nodes"]
        assert isinstance(nodes, list)
        assert [(one["node"], one["current"]) for one in nodes] == [("a:1", 1000), ("b:1", 1000), ("c:1", 0)]


async def test_one_partition_with_its_timeline() -> None:
    async with console() as rig:
        await rig.page("/api/partitions/2")
        rig.source.now = partition(cluster(4), 2, healthy=False, problem="why", session_id=6)
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        page = await rig.page("/api/partitions/2")
        assert page["verdict"] == "partition 2 takes no writes: why"
        findings, timeline = page["findings"], page["timeline"]
        assert isinstance(findings, list)
        assert isinstance(timeline, list)
        assert [one["rule"] for one in findings] == ["not-open"]
        assert [one["text"] for one in timeline] == [
            "partition 2: no writes: why",
            "store session 6 began, of server-0:7, after session 5; its recovery is not complete",
        ]
        rig.source.now = partition(cluster(4), 2, session_id=6)
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        back = (await rig.page("/api/partitions/2"))["timeline"]
        assert isinstance(back, list)
        assert back[0]["text"] == "partition 2: takes writes again, after 0.0 s without"
        placed = page["placement"]
        assert isinstance(placed, list)
        assert "no server prefers it" in placed[0]
        assert "generation 3" in placed[1]
        assert (await rig.page("/api/partitions/1"))["timeline"] == []
        status, body = await rig.get("/api/partitions/4")
        assert (status, body) == (404, {"error": "there is no partition 4: the cluster has 4"})
        assert (await rig.get("/api/partitions/x"))[0] == 404


async def test_the_stream_names_every_observation() -> None:
    async with console() as rig, rig.client.get("/api/events") as stream:
        assert stream.content_type == "text/event-stream"
        numbers: list[int] = []
        while len(numbers) < 3:
            line = (await stream.content.readline()).decode()
            if line.startswith("data: {") and '"number"' in line:
                numbers.append(int(line.split('"number": ')[1].split(",")[0]))
        assert numbers == sorted(set(numbers))


# ---- records


async def append(rig: object, count: int) -> None:
    from tools_tests.console_rig import Rig

    assert isinstance(rig, Rig)
    async with rig.log.client() as client:
        for number in range(count):
            await client.append(partition=1, data=f'{{"n": {number}}}'.encode(), header=number % 3)


def ids(page: dict[str, object]) -> list[int]:
    rows = page["rows"]
    assert isinstance(rows, list)
    return [row["id"] for row in rows]


async def test_records_are_read_in_pages_and_by_header() -> None:
    async with console() as rig:
        await append(rig, 30)
        end = await rig.page("/api/records?partition=1&count=5")
        assert (ids(end), end["end"], end["older"], end["newer"]) == ([29, 28, 27, 26, 25], 29, 24, None)
        assert str(end["command"]).endswith("tail -c client.yaml -p 1 --last 5")
        older = await rig.page("/api/records?partition=1&count=5&before=24")
        assert (ids(older), older["older"], older["newer"]) == ([24, 23, 22, 21, 20], 19, 25)
        assert "--from 20" in str(older["command"])
        first = await rig.page("/api/records?partition=1&count=2&from=0")
        assert (ids(first), first["older"], first["newer"]) == ([1, 0], None, 2)
        chosen = await rig.page("/api/records?partition=1&count=4&header=2")
        assert ids(chosen) == [29, 26, 23, 20]
        assert chosen["older"] == 19
        assert "--header 2" in str(chosen["command"])
        forward = await rig.page("/api/records?partition=1&count=4&header=2&from=3")
        assert (ids(forward), forward["newer"]) == ([14, 11, 8, 5], 15)
        assert (await rig.page("/api/records?partition=0"))["rows"] == []
        one = await rig.page("/api/record?partition=1&id=7")
        assert (one["header"], one["kind"], one["json"]) == (1, "json", '{\n  "n": 7\n}')


async def test_records_are_searched_by_the_client_that_appended_them() -> None:
    async with console() as rig:
        await append(rig, 3)
        await append(rig, 3)  # another client
        rows = (await rig.page("/api/records?partition=1"))["rows"]
        assert isinstance(rows, list)
        newer, older = rows[0]["client"], rows[-1]["client"]
        assert newer != older
        found = await rig.page(f"/api/records?partition=1&client={older}")
        assert ids(found) == [2, 1, 0]
        assert str(found["command"]).endswith(f"--client {older}")
        assert ids(await rig.page(f"/api/records?partition=1&client={newer}&header=2")) == [5]


async def test_mistakes_in_a_question_are_one_sentence() -> None:
    async with console() as rig:
        await append(rig, 1)
        for path, words in (
            ("/api/records?partition=9", "there is no partition 9"),
            ("/api/records?partition=x", "partition is a number"),
            ("/api/records?partition=1&header=seven", "a header filter is"),
            ("/api/records?partition=1&client=me", "client is a number"),
            ("/api/record?partition=1&id=5", "has no transaction 5"),
            ("/api/record?partition=1&id=99999999999999999999", "id is a number"),
        ):
            status, body = await rig.get(path)
            assert (status, words in str(body["error"])) == (400, True), body


async def test_what_is_appended_is_followed_live() -> None:
    async with console() as rig, rig.client.get("/api/follow?partition=1&header=2") as stream:
        async with asyncio.TaskGroup() as group:
            group.create_task(append(rig, 6))
            seen: list[int] = []
            while len(seen) < 2:
                line = (await stream.content.readline()).decode()
                if line.startswith('data: {"rows"'):
                    import json

                    seen = [row["id"] for row in json.loads(line[6:])["rows"]][::-1] + seen
        assert sorted(seen) == [2, 5]


async def test_an_append_is_committed_where_it_is_allowed() -> None:
    from tools_tests.console_rig import TOKEN
    from waltz_tools.console.settings import ConsoleSettings

    settings = ConsoleSettings(TOKEN, interval_seconds=0.05, allow_append=True)
    async with console(settings=settings) as rig:
        status, body = await rig.post("/api/append", {"partition": 1, "data": "hello", "header": 7})
        assert (status, body) == (200, {"partition": 1, "transaction": 0})
        one = await rig.page("/api/record?partition=1&id=0")
        assert (one["text"], one["header"]) == ("hello", 7)
        assert (await rig.post("/api/append", {"partition": "1", "data": "x"}))[0] == 400
