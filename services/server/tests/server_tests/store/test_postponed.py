"""Replicas that are out of a session before it has opened: the others finish, and all are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from server_tests.store.fakes import NAMES, Cluster, FakeNode, Server, entries, until
from server_tests.store.model import Node, answer, metadata, run_until_stuck, state, stream
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.types import SessionInfo
from waltz_server.store.api import StoreSettings, StoreState
from waltz_server.store.postponed import NEVER, Postponed
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Condition, SetLowWaterMark
from waltz_server.store.session_run import SessionRun

FIVE = ("a:1", "b:1", "c:1", "d:1", "e:1")
RECORDS = 1000
SETTINGS = StoreSettings(catch_up_batch_records=10, max_retry_interval_ms=2000)
"""A copy of all records onto a node that takes 0.1 s for each batch needs 10 s: longer than any pause."""


# ---- when a session is replaced


def _due(
    postponed: Postponed,
    now: float,
    *,
    advances: bool,
    only_to_be_listed: bool = False,
    may_advance: bool = False,
) -> float:
    postponed.judge(now, only_to_be_listed=only_to_be_listed, advances=advances, may_advance=may_advance)
    return postponed.due_at


def test_without_others_that_advance_a_session_is_replaced_after_the_shortest_pause() -> None:
    postponed = Postponed(1000.0, 0.5)
    assert not postponed
    postponed.add("c", "in doubt", 8.0, 11.0)
    postponed.add("b", "shut out", 0.5, 12.0)
    postponed.add("b", "reported again", 7.0, 12.0)
    assert _due(postponed, 12.0, advances=False) == 12.5
    assert postponed.cut_short(12.5) == "b is out: shut out"
    assert postponed.cut_short_seconds == 1000.0


def test_while_the_others_advance_each_session_gets_twice_the_time_of_the_one_before() -> None:
    began_at, before, lasted = 0.0, 0.0, []
    for _ in range(5):
        postponed = Postponed(before, 0.5)
        postponed.add("c", "in doubt", 0.5, began_at + 1.0)
        due_at = _due(postponed, began_at + 1.0, advances=True)
        assert _due(postponed, due_at, advances=True) == due_at
        assert postponed.cut_short(due_at) == "c is out: in doubt"
        lasted.append(due_at - began_at)
        began_at, before = due_at, postponed.cut_short_seconds
    assert lasted == [1.5, 2.0, 3.0, 5.0, 9.0]


def test_the_time_before_a_replica_was_out_is_not_doubled() -> None:
    """A session may have waited an hour for the replica that fails now."""
    postponed = Postponed(0.0, 0.5)
    postponed.add("c", "in doubt", 0.5, 3600.0)
    assert _due(postponed, 3600.0, advances=True) == 3600.5
    assert _due(postponed, 3600.5, advances=True) == 3600.5
    postponed.cut_short(3600.5)
    assert postponed.cut_short_seconds == 0.5


def test_a_session_is_kept_for_a_replica_that_may_answer_yet_but_not_for_long() -> None:
    for before, due_at in ((0.0, 1.5), (4.0, 9.0), (1000.0, 31.0)):
        postponed = Postponed(before, 0.5)
        postponed.add("c", "in doubt", 0.5, 1.0)
        assert _due(postponed, 1.0, advances=False, may_advance=True) == due_at
        assert _due(postponed, due_at, advances=False, may_advance=True) == due_at
        postponed.cut_short(due_at)
        assert postponed.cut_short_seconds == due_at - 1.0


def test_a_session_that_only_has_to_be_listed_is_not_replaced() -> None:
    postponed = Postponed(0.0, 0.5)
    postponed.add("c", "in doubt", 0.5, 1.0)
    assert _due(postponed, 9.0, advances=True, only_to_be_listed=True) == NEVER
    assert _due(postponed, 10.0, advances=False) == 1.5


def test_a_connection_that_is_made_again_in_a_moment_costs_no_session() -> None:
    postponed = Postponed(50.0, 0.5)
    postponed.add("c", "in doubt", 0.5, 1.0)
    assert _due(postponed, 20.0, advances=True) == 120.0
    assert _due(postponed, 20.25, advances=False) == 20.5
    assert _due(postponed, 20.5, advances=True) == 120.0
    assert _due(postponed, 30.0, advances=False) == 21.0


def test_all_that_were_postponed_are_tried_after_the_session_has_opened() -> None:
    postponed = Postponed(50.0, 0.5)
    postponed.add("c", "in doubt", 0.5, 1.0)
    postponed.add("d", "closed", 0.25, 1.0)
    assert sorted(postponed.opened()) == [("c is out: in doubt", 0.5), ("d is out: closed", 0.25)]


# ---- whether the others advance


def _recovery(nodes: dict[str, Node], old: PartitionMetadata, gone: str = "") -> Recovery:
    recovery = Recovery(partition_id=0, session_id=6, replicas=list(nodes), metadata=old)
    for name in nodes:
        if name not in gone:
            answer(recovery, nodes, name)
    recovery.gather_over()
    return recovery


def _whole(mark: int = 9) -> Node:
    return Node(stream("s5", 0, mark), session=5, lwm=0, local_lwm=0)


def test_others_advance_while_a_lost_replica_is_filled_from_a_whole_one() -> None:
    nodes = {"A": _whole(), "B": Node(), "C": _whole()}
    recovery = _recovery(nodes, metadata(6, *(state(name, 5) for name in "ABC")))
    assert recovery.resolved == 9
    run_until_stuck(recovery, nodes, "A", 6)
    recovery.failed("C", "in doubt")
    assert recovery.advances
    run_until_stuck(recovery, nodes, "AB", 6)
    assert recovery.quorum_recovered


def test_too_few_others_do_not_advance() -> None:
    nodes = {"A": _whole(), "B": Node(), "C": _whole()}
    recovery = _recovery(nodes, metadata(6, *(state(name, 5) for name in "ABC")))
    for name in "CB":
        recovery.failed(name, "in doubt")
    assert not recovery.advances


def test_others_do_not_advance_without_one_that_holds_what_is_resolved() -> None:
    """B and C, which are new, make a quorum and could be marked, but nobody has the records."""
    nodes = {"A": _whole(), "B": Node(), "C": Node()}
    recovery = _recovery(nodes, metadata(6, state("A", 5)))
    assert recovery.resolved == 9
    run_until_stuck(recovery, nodes, "A", 6)
    assert recovery.advances
    recovery.failed("A", "in doubt")
    assert recovery.next_step("B") == SetLowWaterMark(9)
    assert not recovery.advances


def test_others_that_can_only_wait_do_not_advance() -> None:
    """The mark is undecidable without C; B, which is lost, is not touched before."""
    nodes = {"A": _whole(), "B": Node(), "C": _whole()}
    recovery = _recovery(nodes, metadata(6, *(state(name, 5) for name in "ABC")), gone="C")
    assert recovery.condition()[0] is Condition.UNDECIDABLE
    assert not recovery.advances


def test_others_do_not_advance_in_a_fault() -> None:
    nodes = {"A": _whole(), "B": _whole(), "C": _whole()}
    recovery = _recovery(nodes, metadata(6, *(state(name, 5) for name in "ABC")))
    assert recovery.advances
    recovery.proved("C", "knows a later session")
    assert not recovery.advances


def test_others_advance_while_a_copy_makes_the_mark_decidable() -> None:
    nodes = {"A": _whole(), "B": _whole(3), "C": _whole()}
    recovery = _recovery(nodes, metadata(6, state("A", 5), state("B", 4, 3), state("C", 5)), gone="C")
    assert recovery.resolved is None
    assert recovery.advances
    recovery.failed("A", "in doubt")
    assert not recovery.advances


# ---- sessions


class _Lost(Exception):
    """The request has no answer."""


def _changes_have_no_answer(times: int = 10**9) -> Callable[[str, int], str | None]:
    left = times

    def refuse(kind: str, _session: int) -> str | None:
        nonlocal left
        if kind in ("set_lwm", "append", "truncate") and left > 0:
            left -= 1
            raise _Lost
        return None

    return refuse


async def _filled(cluster: Cluster) -> None:
    """All nodes hold all records; the server is gone. What has no answer is no error of the test."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    first = cluster.server(settings=SETTINGS)
    await first.opened()
    await first.append(entries(RECORDS))
    await until(lambda: all(node.max_txid == RECORDS - 1 for node in cluster.nodes.values()))
    await first.crash()


def _empty_and_slow(node: FakeNode) -> None:
    node.wipe()
    node.delay_seconds = 0.1


async def _second(cluster: Cluster, *, cut_short_seconds: float = 0.0) -> Server:
    """Another server recovers; an earlier session of it was replaced after so many seconds."""
    server = cluster.server(generation=2, settings=SETTINGS)
    server.store._context.cut_short_seconds = cut_short_seconds
    await until(lambda: server.store.session_id >= 1)
    return server


def _is_out(server: Server, name: str) -> bool:
    return any(r.connect_string == name and r.state == "failed" for r in server.store.replicas)


async def _all_vote(cluster: Cluster, server: Server) -> None:
    for node in cluster.nodes.values():
        node.refuse, node.delay_seconds = None, 0.0
    names = len(cluster.names)
    await until(lambda: [r.state for r in server.store.replicas] == ["voting"] * names, 120)
    await server.append(entries(3))
    last = server.store.high_water_mark
    assert last is not None
    await until(lambda: all(node.max_txid == last for node in cluster.nodes.values()))
    cluster.check_equal(last)


@pytest.mark.looptime
async def test_a_lost_replica_is_filled_though_another_one_takes_no_change_in_any_session() -> None:
    """Before, each session was replaced for C before B was full, and the next one emptied B: for good."""
    async with Cluster() as cluster:
        await _filled(cluster)
        _empty_and_slow(cluster.nodes["b:1"])
        cluster.nodes["c:1"].refuse = _changes_have_no_answer()
        server = await _second(cluster)
        await until(lambda: server.store.state is StoreState.OPEN, 60)
        assert server.store.high_water_mark == RECORDS - 1
        assert server.store.session_id < 10
        await _all_vote(cluster, server)


@pytest.mark.looptime
async def test_a_copy_before_the_decision_is_finished_though_another_replica_takes_no_change() -> None:
    """B had dropped out: what it copies before the mark is decided is void in the next session."""
    async with Cluster() as cluster:
        first = cluster.server(settings=SETTINGS)
        await first.opened()
        await first.append(entries(5))
        b, c = cluster.nodes["b:1"], cluster.nodes["c:1"]
        await until(lambda: b.max_txid == 4)
        b.kill()
        await until(lambda: first.store.session_id == 1 and first.store.state is StoreState.OPEN)
        await first.append(entries(RECORDS))
        await until(lambda: c.max_txid == RECORDS + 4)
        c.delay_seconds = 1.0
        first.store.append(entries(1))
        await asyncio.sleep(0.1)
        await first.crash()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        c.delay_seconds = 0.0
        c.refuse = _changes_have_no_answer()
        b.start()
        b.delay_seconds = 0.1
        server = await _second(cluster)
        await until(lambda: server.store.state is StoreState.OPEN, 80)
        await _all_vote(cluster, server)


@pytest.mark.looptime
async def test_a_replica_in_doubt_once_is_tried_again_long_before_another_one_is_full() -> None:
    async with Cluster() as cluster:
        await _filled(cluster)
        _empty_and_slow(cluster.nodes["b:1"])
        cluster.nodes["c:1"].refuse = _changes_have_no_answer(1)
        server = await _second(cluster)
        await until(lambda: server.store.state is StoreState.OPEN, 4)
        assert cluster.nodes["b:1"].max_txid < RECORDS - 1
        await _all_vote(cluster, server)


@pytest.mark.looptime
async def test_of_five_replicas_two_that_take_no_change_are_both_taken_back_after_the_session_opened() -> (
    None
):
    """The session opens without them, and lives until the first pause has passed since then."""
    async with Cluster(FIVE) as cluster:
        await _filled(cluster)
        _empty_and_slow(cluster.nodes["b:1"])
        for name in ("c:1", "d:1"):
            cluster.nodes[name].refuse = _changes_have_no_answer()
        server = await _second(cluster, cut_short_seconds=1000.0)
        session = server.store.session_id
        await until(lambda: server.store.state is StoreState.OPEN, 20)
        assert server.store.session_id == session
        assert server.store._context.cut_short_seconds == 0.0
        assert _is_out(server, "c:1")
        assert _is_out(server, "d:1")
        for name in ("c:1", "d:1"):
            cluster.nodes[name].refuse = None
        await until(lambda: server.store.session_id > session, 3)
        await _all_vote(cluster, server)


@pytest.mark.looptime
async def test_a_replica_that_comes_back_while_another_one_is_filled_opens_the_session() -> None:
    async with Cluster(FIVE) as cluster:
        await _filled(cluster)
        _empty_and_slow(cluster.nodes["b:1"])
        cluster.nodes["c:1"].refuse = _changes_have_no_answer()
        cluster.nodes["e:1"].kill()
        server = await _second(cluster, cut_short_seconds=1000.0)
        session = server.store.session_id
        await until(lambda: _is_out(server, "c:1"))
        cluster.nodes["e:1"].start()
        await until(lambda: server.store.state is StoreState.OPEN, 5)
        assert server.store.session_id == session
        assert cluster.nodes["b:1"].max_txid < RECORDS - 1
        await _all_vote(cluster, server)


@pytest.mark.looptime
@pytest.mark.parametrize("how", ["the source dies", "the filled one is in doubt"])
async def test_a_failure_that_leaves_too_few_replaces_the_session_at_once(how: str) -> None:
    """However long the sessions before it were: what can't be finished is not waited for."""
    async with Cluster() as cluster:
        await _filled(cluster)
        a, b, c = cluster.nodes.values()
        _empty_and_slow(b)
        c.refuse = _changes_have_no_answer()
        server = await _second(cluster, cut_short_seconds=1000.0)
        await until(lambda: b.max_txid > 300, 20)
        session = server.store.session_id
        assert _is_out(server, "c:1")
        if how == "the source dies":
            a.kill()
        else:
            for link in list(b.links):
                link.break_off("the cable was pulled")
        await until(lambda: server.store.session_id > session or server.store.current_run is None, 1)
        a.start()
        await until(lambda: server.store.session_id > session)
        await _all_vote(cluster, server)


@pytest.mark.looptime
async def test_a_source_that_connects_again_at_once_costs_no_session() -> None:
    async with Cluster() as cluster:
        await _filled(cluster)
        a, b, c = cluster.nodes.values()
        _empty_and_slow(b)
        c.refuse = _changes_have_no_answer()
        server = await _second(cluster, cut_short_seconds=1000.0)
        await until(lambda: b.max_txid > 300, 20)
        session = server.store.session_id
        for link in list(a.links):
            link.break_off("the cable was pulled")
        await until(lambda: server.store.state is StoreState.OPEN, 20)
        assert server.store.session_id == session


@pytest.mark.looptime
async def test_a_fence_of_a_successor_ends_a_session_at_once_though_the_others_advance() -> None:
    """A replica that comes late has it. Nobody asks ZooKeeper on their own just then."""
    async with Cluster(FIVE) as cluster:
        await _filled(cluster)
        b, late = cluster.nodes["b:1"], cluster.nodes["e:1"]
        _empty_and_slow(b)
        cluster.nodes["c:1"].refuse = _changes_have_no_answer()
        late.kill()
        server = await _second(cluster, cut_short_seconds=1000.0)
        await asyncio.sleep(4.1)  # ZooKeeper was asked after 2 and 4 s, and is after 8 s
        assert _is_out(server, "c:1")
        assert server.store.current_run is not None
        await cluster.write(lambda found: PartitionMetadata(3, found.session_id + 1, found.replicas))
        late.fence = server.store.session_id + 1
        late.calls.clear()
        late.start()
        await until(lambda: bool(late.calls), 3)
        await until(lambda: server.store.current_run is None, 0.1)


@pytest.mark.looptime
async def test_the_only_replica_in_doubt_is_tried_again_by_the_next_session() -> None:
    async with Cluster(NAMES[:1]) as cluster:
        await _filled(cluster)
        cluster.nodes["a:1"].refuse = _changes_have_no_answer(2)
        server = await _second(cluster, cut_short_seconds=1000.0)
        await until(lambda: server.store.state is StoreState.OPEN, 10)
        assert server.store.session_id == 3


@pytest.mark.looptime
async def test_a_store_that_is_closed_tries_nothing_again() -> None:
    async with Cluster() as cluster:
        await _filled(cluster)
        _empty_and_slow(cluster.nodes["b:1"])
        cluster.nodes["c:1"].refuse = _changes_have_no_answer()
        server = await _second(cluster, cut_short_seconds=1000.0)
        await until(lambda: _is_out(server, "c:1"))
        session, calls = server.store.session_id, len(cluster.nodes["c:1"].calls)
        server.store.close()
        assert server.task is not None
        await server.task
        await asyncio.sleep(60)
        assert (await cluster.stored()).session_id == session
        assert len(cluster.nodes["c:1"].calls) == calls


@pytest.mark.looptime
async def test_a_slow_replica_is_heard_though_another_one_fails_at_each_change() -> None:
    """Each session was replaced before the slow one had answered its first question."""
    settings = StoreSettings(max_retry_interval_ms=5000)
    async with Cluster() as cluster:
        first = cluster.server(settings=settings)
        await first.opened()
        await first.append(entries(400))
        await until(lambda: all(node.max_txid == 399 for node in cluster.nodes.values()))
        await first.crash()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        cluster.nodes["b:1"].delay_seconds = 0.8
        c, refuse = cluster.nodes["c:1"], _changes_have_no_answer()

        def ends_its_connection(kind: str, session: int) -> str | None:
            try:
                return refuse(kind, session)
            except _Lost:
                for link in list(c.links):
                    link.break_off("it ended")
                raise

        c.refuse = ends_its_connection
        server = cluster.server(generation=2, settings=settings)
        await until(lambda: server.store.state is StoreState.OPEN, 200)


@pytest.mark.looptime
async def test_a_fault_that_is_found_while_a_quorum_waits_to_be_listed_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of that moment is in the past for as long as the fault lasts."""
    async with Cluster(FIVE) as cluster:
        await _filled(cluster)
        slow, late = cluster.nodes["d:1"], cluster.nodes["e:1"]
        slow.wipe()
        for node in cluster.nodes.values():
            node.delay_seconds = 0.02
        slow.delay_seconds, late.delay_seconds = 0.0, 0.1
        looks, next_wake = 0, SessionRun._next_wake

        def counted(
            run: SessionRun, now: float, grace_ends: float | None, *, serving: bool = False
        ) -> float | None:
            nonlocal looks
            looks += 1
            return next_wake(run, now, grace_ends, serving=serving)

        monkeypatch.setattr(SessionRun, "_next_wake", counted)
        server = cluster.server(generation=2, settings=SETTINGS)
        await until(
            lambda: (run := server.store.current_run) is not None and run._quorum_since is not None, 20, 0.001
        )
        slow.delay_seconds = 0.05
        late.info = SessionInfo(late.info.session_id + 50, 999, 999)
        await until(lambda: server.store.state is StoreState.FAULT)
        looks = 0
        await asyncio.sleep(10)
        assert looks < 20
