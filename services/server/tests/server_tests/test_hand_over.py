"""A lock table on its way to the next owner: when it is used, and when it must not be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_tests.registry_on_nodes import registry_on
from server_tests.store.fakes import NAMES, PARTITION, Cluster, until
from waltz_protocol import locks as locks_module
from waltz_protocol.codec import PEER
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.append_batch import Verdict
from waltz_protocol.locks import LockTable
from waltz_protocol.messages.peer import PEER_VERSION, HandOver
from waltz_protocol.types import ReqId
from waltz_server.partition import hand_over as module
from waltz_server.partition.hand_over import LockHandOver, first_table, hand_over_of, message_of, parse
from waltz_server.partition.owned_partition import Partition
from waltz_server.peers.protocol import MAX_PEER_BODY_BYTES
from waltz_server.registry import PartitionRegistry
from waltz_testkit.client_peers import FakeClient, make_append

SLOTS = 512
CLUSTER = UUID(int=5)
ALICE, BOB, CAROL = 101, 202, 303


# -- the table


def through_the_wire(one: LockHandOver) -> LockHandOver:
    return parse(message_of(one, CLUSTER), CLUSTER)


@given(
    size=st.integers(1, 40),
    start=st.integers(-1, 50),
    commits=st.lists(st.sets(st.integers(0, 39), max_size=5), max_size=30),
    kept=st.integers(0, 12),
)
def test_what_is_handed_over_conflicts_with_all_that_the_table_did(
    size: int, start: int, commits: list[set[int]], kept: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks_module, "MAX_RECENT_SLOTS", kept)
        table = LockTable(size, start)
        mark = start
        for slots in commits:
            mark += 2
            table.commit(tuple(slot % size for slot in slots), mark)
        copy = through_the_wire(hand_over_of(table, PARTITION, 3, 7, mark)).table()
        for lock in range(60):
            assert mark >= copy.estimate((lock,), ()) >= table.estimate((lock,), ())
        if table.floor == start:
            assert copy._table == table._table


def test_the_largest_table_fits_into_a_message() -> None:
    table = LockTable(30_000, -1)
    for transaction_id in range(10_000):
        table.commit(table.slots_to_raise((transaction_id,), ()), transaction_id)
    assert len(table.recent) == locks_module.MAX_RECENT_COMMITS
    handed_over = hand_over_of(table, PARTITION, 3, 7, 9_999)
    body = PEER.encode(message_of(handed_over, CLUSTER), PEER_VERSION)
    assert len(body) < MAX_PEER_BODY_BYTES
    assert through_the_wire(handed_over).table()._table[:100] == [
        max(value, table.floor) for value in table._table[:100]
    ]


def test_a_commit_with_more_slots_than_are_kept_raises_the_floor() -> None:
    table = LockTable(30_000, -1)
    table.commit(tuple(range(locks_module.MAX_RECENT_SLOTS + 1)), 5)
    assert (table.floor, len(table.recent)) == (5, 0)
    table.commit((1,), 6)
    assert (table.floor, list(table.recent)) == (5, [(6, (1,))])


def whole() -> LockHandOver:
    return LockHandOver(PARTITION, 3, 7, 20, SLOTS, 10, ((12, (1, 2)), (20, (511,))))


def broken(message: HandOver) -> list[HandOver]:
    """What a network, a peer or a bug could make of it."""
    commits = message.commits or b""
    return [
        replace(message, commits=commits[:-4]),
        replace(message, commits=commits[:3]),
        replace(message, commits=b""),
        replace(message, commits=commits + b"\0\0\0\0"),
        replace(message, high_water_mark=21),
        replace(message, session_id=8),
        replace(message, partition_id=PARTITION + 1),
        replace(message, generation=4),
        replace(message, floor=9),
        replace(message, table_size=SLOTS + 1),
        replace(message, cluster=UUID(int=6)),
        replace(message, slot_scheme=2),
    ]


def test_safety_d12_a_table_that_is_not_whole_is_refused() -> None:
    message = message_of(whole(), CLUSTER)
    assert parse(message, CLUSTER) == whole()
    for other in broken(message):
        with pytest.raises(ProtocolError):
            parse(other, CLUSTER)


def test_safety_d12_a_table_of_another_cluster_or_slot_scheme_is_refused() -> None:
    with pytest.raises(ProtocolError, match="another cluster"):
        parse(message_of(whole(), UUID(int=6)), CLUSTER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLOT_SCHEME", 2)
        other = message_of(whole(), CLUSTER)
    with pytest.raises(ProtocolError, match="slot scheme 2"):
        parse(other, CLUSTER)


def test_the_bytes_of_a_table_are_these() -> None:
    body = PEER.encode(message_of(whole(), CLUSTER), PEER_VERSION)
    assert body.hex() == (
        "4c03e800000069" "04" "00000000" "00000003" "00000000000000000000000000000005" "00000001"
        "0000000000000007" "0000000000000014" "00000200" "000000000000000a"
        "00000024" "00000002" "000000000000000c0002" "00000000000000140001" "0000000100000002" "000001ff"
        "000000000e7ce660"
    )  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        replace(whole(), commits=((12, (1,)), (21, (2,)))),
        replace(whole(), commits=((20, (1,)), (12, (2,)))),
        replace(whole(), commits=((10, (1,)),)),
        replace(whole(), commits=((12, (SLOTS,)),)),
        replace(whole(), floor=21, commits=()),
        replace(whole(), table_size=0, commits=()),
    ],
)
def test_safety_d12_a_table_that_cannot_be_is_refused(wrong: LockHandOver) -> None:
    with pytest.raises(ProtocolError):
        through_the_wire(wrong)


def test_safety_d12_the_bytes_of_a_table_agree_with_its_checksum_and_its_length() -> None:
    message = message_of(whole(), CLUSTER)
    short = (message.commits or b"")[:-4]
    fields = (PARTITION, 3, CLUSTER, 1, 7, 20, SLOTS, 10)
    with pytest.raises(ProtocolError, match="slots in"):
        parse(replace(message, commits=short, checksum=module._checksum(fields, short)), CLUSTER)


@pytest.mark.parametrize(
    ("partition_id", "session_id", "mark", "size"),
    [
        (PARTITION + 1, 8, 20, SLOTS),
        (PARTITION, 7, 20, SLOTS),
        (PARTITION, 9, 20, SLOTS),
        (PARTITION, 8, 19, SLOTS),
        (PARTITION, 8, 21, SLOTS),
        (PARTITION, 8, 20, SLOTS + 1),
    ],
)
def test_safety_d12_a_table_of_another_log_is_not_used(
    partition_id: int, session_id: int, mark: int, size: int
) -> None:
    assert first_table(whole(), PARTITION, 8, 20, SLOTS).floor == 10
    assert first_table(whole(), partition_id, session_id, mark, size).floor == mark
    assert first_table(None, PARTITION, 8, 20, SLOTS).floor == 20


# -- two servers


class Server:
    """The partitions of one server, on the storage nodes of the cluster."""

    def __init__(self, registry: PartitionRegistry) -> None:
        self.registry = registry
        self._clients = 0

    @property
    def partition(self) -> Partition:
        return self.registry.partitions[PARTITION]

    async def append(self, view: int, *locks: int, wait: bool = True) -> FakeClient:
        """One append under write locks, by a client of its own."""
        self._clients += 1
        generation = self.partition.generation
        client = FakeClient(1000 * generation + self._clients, version=5)
        self.partition.mount(client, ReqId(client.client_id, generation, PARTITION, 1).pack(), generation, -1)
        req_id = ReqId(client.client_id, generation, PARTITION, 2)
        self.partition.append(client, make_append(req_id, client_high_water_mark=view, write=locks))
        if wait:
            await until(lambda: bool(client.answered()))
        return client

    async def begin_append(self, view: int, *locks: int) -> FakeClient:
        """As `append`, until it is handed to the storage nodes."""
        before = self.partition._appends.handed
        client = await self.append(view, *locks, wait=False)
        while self.partition._appends.handed == before:
            await asyncio.sleep(0)
        assert not client.answered()
        return client

    async def verdict(self, view: int, *locks: int) -> Verdict:
        return (await self.append(view, *locks)).answered()[-1].verdict


@asynccontextmanager
async def server(cluster: Cluster, seed: int) -> AsyncIterator[Server]:
    async with registry_on(cluster, seed, lock_table_size=SLOTS) as registry:
        yield Server(registry)


Change = Callable[[LockHandOver | None], Awaitable[LockHandOver | None]]


async def unchanged(handed_over: LockHandOver | None) -> LockHandOver | None:
    return handed_over


class Asking:
    """What a server asks with, without a network."""

    def __init__(self, old: Server, change: Change = unchanged) -> None:
        self._old = old
        self._change = change

    def prepare(self, address: str) -> None: ...

    async def ask(self, address: str, partition_id: int, generation: int) -> LockHandOver | None:
        answer: asyncio.Future[LockHandOver | None] = asyncio.get_running_loop().create_future()
        self._old.registry.hand_over(partition_id, generation, answer.set_result)
        return await self._change(await answer)


@asynccontextmanager
async def two_servers(change: Change | None = unchanged) -> AsyncIterator[tuple[Server, Server, Cluster]]:
    """The first has written ALICE at 0 and BOB at 1 and 2; the second asks it, unless `change` is None."""
    async with Cluster() as cluster, server(cluster, 1) as first, server(cluster, 2) as second:
        first.registry.adopt({PARTITION: 1})
        await until(lambda: first.partition.healthy)
        for lock in (ALICE, BOB, BOB):
            mark = first.partition.high_water_mark
            assert mark is not None
            assert await first.verdict(mark, lock) is Verdict.COMMITTED
        second.registry.owners = {PARTITION: "first:1"}
        if change is not None:
            second.registry.old_owners = Asking(first, change)
        yield first, second, cluster


async def gained(second: Server) -> None:
    second.registry.adopt({PARTITION: 2})
    await until(lambda: second.partition.healthy)


def leaves(first: Server) -> None:
    first.registry.begin_leaving()
    first.partition.leave_on_session_loss()


def moves(first: Server) -> None:
    first.registry.adopt({}, settle=True)


async def refused_needlessly(second: Server) -> int:
    """Of three appends that nothing is in the way of, with views of before the hand-over."""
    verdicts = [await second.verdict(view, lock) for view, lock in ((0, ALICE), (1, CAROL), (2, BOB))]
    return verdicts.count(Verdict.LOCK_CONFLICT)


@pytest.mark.looptime
@pytest.mark.parametrize("stop", [leaves, moves])
async def test_after_a_planned_stop_nothing_is_refused_needlessly(stop: Callable[[Server], None]) -> None:
    async with two_servers(None) as (first, second, _):
        stop(first)
        await gained(second)
        assert await refused_needlessly(second) == 2, "without a hand-over"
    async with two_servers() as (first, second, _):
        stop(first)
        await gained(second)
        assert await refused_needlessly(second) == 0


@pytest.mark.looptime
@pytest.mark.parametrize("stop", [leaves, moves])
async def test_safety_d12_what_is_stale_is_refused_after_a_hand_over(stop: Callable[[Server], None]) -> None:
    async with two_servers() as (first, second, _):
        stop(first)
        await gained(second)
        assert await second.verdict(-1, ALICE) is Verdict.LOCK_CONFLICT
        assert await second.verdict(1, BOB) is Verdict.LOCK_CONFLICT
        assert await second.verdict(0, BOB, CAROL) is Verdict.LOCK_CONFLICT


@pytest.mark.looptime
async def test_what_is_in_flight_is_settled_before_it_is_handed_over() -> None:
    async with two_servers() as (first, second, _):
        last = await first.begin_append(2, CAROL)
        moves(first)
        await gained(second)
        assert [answer.verdict for answer in last.answered()] == [Verdict.COMMITTED]
        assert second.partition.high_water_mark == 3
        assert await second.verdict(2, CAROL) is Verdict.LOCK_CONFLICT
        assert await second.verdict(0, ALICE) is Verdict.COMMITTED


@pytest.mark.looptime
async def test_a_question_before_the_assignment_is_answered_when_it_has_come() -> None:
    async with two_servers() as (first, second, _):
        second.registry.adopt({PARTITION: 2})
        await asyncio.sleep(module.HAND_OVER_SECONDS / 2)
        assert second.partition.high_water_mark is None
        moves(first)
        await until(lambda: second.partition.healthy)
        assert await refused_needlessly(second) == 0


@pytest.mark.looptime
async def test_an_owner_that_stays_hands_nothing_over_and_is_not_stopped() -> None:
    async with two_servers() as (first, _, _):
        answers: list[LockHandOver | None] = []
        first.registry.hand_over(PARTITION, 2, answers.append)
        first.registry.hand_over(PARTITION + 1, 2, answers.append)
        assert answers == [None]
        assert await first.verdict(2, BOB) is Verdict.COMMITTED
        await asyncio.sleep(2 * module.HAND_OVER_SECONDS)
        assert answers == [None, None]


@pytest.mark.looptime
async def test_nothing_is_handed_over_to_an_older_generation() -> None:
    async with two_servers() as (first, _, _):
        leaves(first)
        answers: list[LockHandOver | None] = []
        first.registry.hand_over(PARTITION, 1, answers.append)
        assert answers == [None]
        assert await first.verdict(2, BOB) is Verdict.COMMITTED


@pytest.mark.looptime
@pytest.mark.parametrize("stop", [leaves, moves])
async def test_an_append_that_waits_while_it_is_settled_is_refused_in_time(
    stop: Callable[[Server], None],
) -> None:
    async with two_servers() as (first, _, _):
        partition = first.partition
        await first.begin_append(2, CAROL)
        waiting = await first.append(2, ALICE, wait=False)
        stop(first)
        given: list[LockHandOver | None] = []
        first.registry.hand_over(PARTITION, 2, given.append)
        await until(lambda: partition.closed)
        assert [answer.verdict for answer in waiting.answered()] == [Verdict.NOT_SERVED]
        assert [None if one is None else one.high_water_mark for one in given] == [3]


@pytest.mark.looptime
async def test_safety_d12_a_table_is_not_used_when_the_log_has_grown() -> None:
    async with two_servers() as (first, second, _):
        table = first.partition._appends.locks
        assert table is not None
        older = hand_over_of(table, PARTITION, 1, first.partition.store.session_id, 2)
        assert await first.verdict(2, ALICE) is Verdict.COMMITTED

        async def late(_: LockHandOver | None) -> LockHandOver | None:
            return older

        second.registry.old_owners = Asking(first, late)
        leaves(first)
        await gained(second)
        assert second.partition.high_water_mark == 3
        assert await second.verdict(0, ALICE) is Verdict.LOCK_CONFLICT


@pytest.mark.looptime
async def test_safety_d12_a_table_of_before_another_owner_is_not_used() -> None:
    async with two_servers() as (first, second, cluster), server(cluster, 3) as third:
        given: list[LockHandOver | None] = []
        leaves(first)
        first.registry.hand_over(PARTITION, 2, given.append)
        await gained(second)
        assert given[0] is not None
        second.registry.begin_leaving()

        async def older(_: LockHandOver | None) -> LockHandOver | None:
            return given[0]

        third.registry.owners = {PARTITION: "second:1"}
        third.registry.old_owners = Asking(second, older)
        third.registry.adopt({PARTITION: 3})
        await until(lambda: third.partition.healthy)
        assert third.partition.high_water_mark == given[0].high_water_mark
        assert await third.verdict(1, CAROL) is Verdict.LOCK_CONFLICT


@pytest.mark.looptime
async def test_safety_d8_what_is_being_settled_is_closed_when_the_session_may_be_over() -> None:
    async with two_servers() as (first, _, _):
        partition = first.partition
        await first.begin_append(2, CAROL)
        moves(first)
        assert not partition.closed
        first.registry.adopt({})
        assert partition.closed


@pytest.mark.looptime
async def test_what_cannot_be_settled_is_closed_soon() -> None:
    async with two_servers() as (first, second, cluster):
        partition = first.partition
        await first.begin_append(2, CAROL)
        for name in NAMES:
            cluster.nodes[name].kill()
        moves(first)
        await asyncio.sleep(2 * module.HAND_OVER_SECONDS)
        assert partition.closed
        for name in NAMES:
            cluster.nodes[name].start()
        await gained(second)
        assert await second.verdict(1, CAROL) is Verdict.LOCK_CONFLICT


@pytest.mark.looptime
async def test_who_leaves_soon_after_it_got_a_partition_back_hands_over_what_it_has_now() -> None:
    async with two_servers() as (first, _, _):
        moves(first)
        first.registry.adopt({PARTITION: 2}, settle=True)
        await until(lambda: PARTITION in first.registry.partitions and first.partition.healthy)
        session_id = first.partition.store.session_id
        leaves(first)
        given: list[LockHandOver | None] = []
        first.registry.hand_over(PARTITION, 3, given.append)
        await asyncio.sleep(2 * module.HAND_OVER_SECONDS)
        assert [one and one.session_id for one in given] == [session_id]
