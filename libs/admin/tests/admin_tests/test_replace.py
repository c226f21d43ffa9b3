"""Replacing a node while another administrator does the same: one of them may be refused, neither fails."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from admin_tests.fake_processes import FakeNode
from waltz_admin import assignments, nodes, seeding
from waltz_admin.errors import AdminError, RefusedError
from waltz_admin.replace import NodeReplacement, ReplaceEvent, ReplaceOptions
from waltz_admin.tree import read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.messages import admin
from waltz_protocol.types import UNRESOLVED, PartitionId, SessionInfo

ROOT = "/waltz"
NO_TLS = TlsSettings(enabled=False)
GROUP = 0


def at_operation(store: MemoryStore, number: int, work: Callable[[], Awaitable[Any]]) -> Callable[[], bool]:
    """Before the operation of this number of the store does `work`; says whether it came to that."""
    call, numbers, done = store._call, itertools.count(), []

    async def counted(name: str, path: str, action: Callable[[], Any]) -> Any:
        if next(numbers) == number:
            done.append(True)
            await work()
        return await call(name, path, action)

    store._call = counted  # type: ignore[method-assign]
    return lambda: bool(done)


async def two_administrators(moment: int, *, same_target: bool) -> bool:
    """One runs from beginning to end before the operation `moment` of the other; False when the other has
    fewer."""
    zookeeper = MemoryZooKeeper()
    setup, one, other = (zookeeper.session() for _ in range(3))
    await seeding.create(setup, ROOT, "demo", 2)
    _, params = await read_params(setup, ROOT)
    fakes = [FakeNode(params.cluster_key) for _ in range(3)]
    async with fakes[0].running() as old, fakes[1].running() as new, fakes[2].running() as third:
        await nodes.add_storage_node(setup, ROOT, old.connect_string, old.admin_port, GROUP)
        await assignments.assign(setup, ROOT, [0, 1], old.connect_string, tls=NO_TLS)

        def replacement(store: MemoryStore, target: FakeNode) -> NodeReplacement:
            return NodeReplacement(
                store,
                ROOT,
                old.connect_string,
                target.connect_string,
                target.admin_port,
                tls=NO_TLS,
                options=ReplaceOptions(at_once=1, timeout_seconds=5.0),
            )

        target = new if same_target else third

        async def all_of_it() -> None:
            if (
                await setup.exists(ClusterPaths(ROOT).admin_lock) is None
            ):  # else it would wait for this very moment to pass
                await replacement(one, new).run()

        came = at_operation(other, moment, all_of_it)
        with suppress(AdminError):
            await replacement(other, target).run()
        maps = await read_maps(setup, ClusterPaths(ROOT))
        held = [set(maps.partitions.get(node.connect_string, ())) for node in (new, third)]
        assert old.connect_string not in maps.partitions
        assert held[0] | held[1] == {0, 1}
        return came()


async def enumerate_moments(*, same_target: bool) -> int:
    for moment in itertools.count():
        async with asyncio.timeout(20):
            if not await two_administrators(moment, same_target=same_target):
                return moment
    raise AssertionError


async def test_two_replace_a_node_by_the_same_one() -> None:
    assert await enumerate_moments(same_target=True) > 20


async def test_two_replace_a_node_by_different_ones() -> None:
    assert await enumerate_moments(same_target=False) > 20


@pytest.mark.parametrize("old_is_gone", [False, True])
@pytest.mark.parametrize("copy", [False, True])
async def test_another_run_puts_into_service_what_an_interrupted_one_left_switched_off(
    old_is_gone: bool, copy: bool
) -> None:
    """It was copying what another administrator's run assigned meanwhile, and was killed: not missing any
    longer, and out of service until somebody switches it on."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 2)
    _, params = await read_params(store, ROOT)
    async with FakeNode(params.cluster_key).running() as old, FakeNode(params.cluster_key).running() as new:
        for node in (old, new):
            await nodes.add_storage_node(store, ROOT, node.connect_string, node.admin_port, GROUP)
        await assignments.assign(store, ROOT, [0, 1], new.connect_string, tls=NO_TLS)
        if old_is_gone:
            await nodes.remove_storage_node(store, ROOT, old.connect_string)
        else:
            await assignments.assign(store, ROOT, [0, 1], old.connect_string, tls=NO_TLS)
        new.status = {0: True, 1: False}
        options = ReplaceOptions(copy=copy, timeout_seconds=5.0)
        replacement = NodeReplacement(
            store, ROOT, old.connect_string, new.connect_string, new.admin_port, tls=NO_TLS, options=options
        )
        assert (await replacement.plan())[0] == f"put partitions 1 of {new.connect_string} into service"
        await replacement.run()
        assert new.status == {0: True, 1: True}


async def test_another_run_gives_back_what_somebody_took_from_the_new_node_before_it_was_assigned() -> None:
    """`sync-partitions` removes what ZooKeeper does not assign, and a replacement fills before it assigns."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 2)
    _, params = await read_params(store, ROOT)
    async with FakeNode(params.cluster_key).running() as old, FakeNode(params.cluster_key).running() as new:
        for node in (old, new):
            await nodes.add_storage_node(store, ROOT, node.connect_string, node.admin_port, GROUP)
            await assignments.assign(store, ROOT, [0, 1], node.connect_string, tls=NO_TLS)
        new.status = {1: True}
        replacement = NodeReplacement(
            store, ROOT, old.connect_string, new.connect_string, new.admin_port, tls=NO_TLS
        )
        assert (await replacement.plan())[0] == f"add partitions 0 to {new.connect_string} again"
        await replacement.run()
        assert new.status == {0: True, 1: True}


@pytest.mark.parametrize("full", [False, True])
async def test_what_is_found_switched_off_is_not_switched_off_again(full: bool) -> None:
    """While the first one is copied, another administrator has put the second one into service, where it may
    complete a quorum by now. On a node with a full disk the status is the same, though all are in service."""
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 2)
    _, params = await read_params(store, ROOT)
    async with (
        FakeNode(params.cluster_key).running() as source,
        FakeNode(params.cluster_key).running() as new,
    ):
        for node in (source, new):
            await nodes.add_storage_node(store, ROOT, node.connect_string, node.admin_port, GROUP)
            await assignments.assign(store, ROOT, [0, 1], node.connect_string, tls=NO_TLS)
        for partition in (0, 1):
            states = {
                node.connect_string: ReplicaState(PartitionId(partition), node.connect_string, 5, UNRESOLVED)
                for node in (source, new)
            }
            await StoreMetadata(store, ROOT).create_partition(partition, PartitionMetadata(1, 5, states))
        new.orders.clear()
        new.status = {0: False, 1: False}
        new.refuse_storage = (
            "the partition is available: offline recovery needs it unavailable" if full else None
        )

        def report(event: ReplaceEvent) -> None:
            if event.text.startswith("copying partition 0") and not full:
                new.status[1] = True

        await NodeReplacement(
            store, ROOT, "gone:1", new.connect_string, new.admin_port, tls=NO_TLS, report=report
        ).run()
        switched = [m for m in new.orders if isinstance(m, admin.PartitionAvailableRequest)]
        assert [(m.partitions, m.available) for m in switched] == [((0,), True), ((1,), True)]


@dataclass
class Surplus:
    """Partition 0 is on `old` and two others; 1 is assigned to `elsewhere`, and `old` has it too."""

    store: MemoryStore
    old: FakeNode
    new: FakeNode
    elsewhere: FakeNode
    others: list[FakeNode]

    def replacement(self, *, delete_files: bool = True) -> NodeReplacement:
        options = ReplaceOptions(copy=False, allow_pause=True, delete_files=delete_files, timeout_seconds=5.0)
        old, new = self.old.connect_string, self.new.connect_string
        return NodeReplacement(self.store, ROOT, old, new, self.new.admin_port, tls=NO_TLS, options=options)

    async def next_session(self) -> None:
        """What the server does after a change: a session of partition 0 with all who are assigned."""
        metadata = StoreMetadata(self.store, ROOT)
        state, version = await metadata.read_partition(0)
        assert state is not None
        holders = assignments.replicas((await read_maps(self.store, ClusterPaths(ROOT))).partitions, 0)
        session_id = state.session_id + 1
        for node in (self.old, self.new, *self.others):
            node.session = SessionInfo(session_id, -1, -1)
        await metadata.write_partition(0, listed(0, session_id, holders), version)

    def taken_from_old(self) -> list[int]:
        orders = [m for m in self.old.orders if isinstance(m, admin.PartitionAssignmentRequest)]
        return sorted(p for m in orders if not m.assigned for p in m.partitions or ())


def listed(partition: int, session_id: int, holders: Iterable[str]) -> PartitionMetadata:
    states = {node: ReplicaState(PartitionId(partition), node, session_id, UNRESOLVED) for node in holders}
    return PartitionMetadata(1, session_id, states)


@pytest.fixture
async def surplus(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Surplus]:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 2)
    _, params = await read_params(store, ROOT)
    fakes = [FakeNode(params.cluster_key) for _ in range(5)]
    async with AsyncExitStack() as stack:
        for node in fakes:
            await stack.enter_async_context(node.running())
        old, new, elsewhere, *others = fakes
        for group, node in enumerate((old, elsewhere, *others)):
            await nodes.add_storage_node(store, ROOT, node.connect_string, node.admin_port, group)
        for node in (old, *others):
            await assignments.assign(store, ROOT, [0], node.connect_string, tls=NO_TLS)
            node.status, node.session = {0: True}, SessionInfo(3, -1, -1)
        await assignments.assign(store, ROOT, [1], elsewhere.connect_string, tls=NO_TLS)
        old.status[1] = True
        elsewhere.status, elsewhere.session = {1: True}, SessionInfo(5, -1, -1)
        metadata = StoreMetadata(store, ROOT)
        await metadata.create_partition(0, listed(0, 3, [node.connect_string for node in (old, *others)]))
        await metadata.create_partition(1, listed(1, 5, [elsewhere.connect_string]))
        made = Surplus(store, old, new, elsewhere, others)

        async def complete(*_: Any, **__: Any) -> None:
            await made.next_session()

        monkeypatch.setattr("waltz_admin.replace.wait_complete", complete)
        yield made


@pytest.mark.parametrize("delete_files", [False, True])
async def test_safety_a8_a_copy_that_knows_a_later_session_stays_on_the_old_node(
    surplus: Surplus, delete_files: bool
) -> None:
    """ZooKeeper is an older copy: partition 1 moved to the old node, and took appends there."""
    old = surplus.old.connect_string
    surplus.old.other_sessions[1] = SessionInfo(9, -1, -1)
    plan = await surplus.replacement(delete_files=delete_files).plan()
    assert [line for line in plan if line.startswith(f"keep partition 1 on {old}: ")]
    assert plan[-1] == f"keep {old} as a storage node, because of what it keeps"
    result = await surplus.replacement(delete_files=delete_files).run()
    assert surplus.taken_from_old() == [0]
    assert surplus.old.status == {1: True}
    assert result.moved == (0,)
    assert list(result.kept) == [1]
    assert "completed session 9" in result.kept[1]
    assert "accept-restored" in result.kept[1]
    assert old in (await read_maps(surplus.store, ClusterPaths(ROOT))).partitions

    surplus.old.other_sessions[1] = SessionInfo(5, -1, -1)  # it is cured, and the command is run again
    again = await surplus.replacement(delete_files=delete_files).run()
    assert (again.moved, again.kept) == ((), {})
    assert surplus.old.status == {}
    assert old not in (await read_maps(surplus.store, ClusterPaths(ROOT))).partitions


async def test_safety_a6_the_only_copy_that_answers_stays_on_the_old_node(surplus: Surplus) -> None:
    """The assigned copy is out of service: this one may be the last that can be read."""
    surplus.elsewhere.status = {1: False}
    result = await surplus.replacement().run()
    assert surplus.taken_from_old() == [0]
    assert "0 of 1 replicas are proven to be current" in result.kept[1]


@pytest.mark.parametrize("answer", ["/data/0: Input/output error", None])
async def test_safety_a8_an_old_node_that_cannot_remove_a_copy_is_not_forgotten(
    surplus: Surplus, answer: str | None
) -> None:
    """It answered and named its partitions: a refusal, or an end in the middle, says nothing about the rest,
    among it a copy that knows a later session than ZooKeeper."""
    old = surplus.old.connect_string
    surplus.old.other_sessions[1] = SessionInfo(9, -1, -1)
    surplus.old.refuses_removal[0] = answer
    result = await surplus.replacement().run()
    assert (result.moved, result.left, sorted(result.kept)) == ((0,), None, [0, 1])
    assert (answer or "closed") in result.kept[0]
    assert ("completed session 9" in result.kept[1]) == (answer is not None), "it is asked, if it is there"
    assert old in (await read_maps(surplus.store, ClusterPaths(ROOT))).partitions

    surplus.old.refuses_removal.clear()
    surplus.old.other_sessions.clear()
    surplus.old.session = SessionInfo(5, -1, -1)
    again = await surplus.replacement().run()
    assert (again.moved, again.kept) == ((), {})
    assert old not in (await read_maps(surplus.store, ClusterPaths(ROOT))).partitions


async def test_an_old_node_that_does_not_list_its_partitions_is_not_forgotten(surplus: Surplus) -> None:
    """Nor is anything planned: what it has would not be in the plan."""
    surplus.old.refuse = "the list cannot be read"
    for begun in (surplus.replacement().plan(), surplus.replacement().run()):
        with pytest.raises(RefusedError, match="the list cannot be read"):
            await begun
    assert surplus.old.connect_string in (await read_maps(surplus.store, ClusterPaths(ROOT))).partitions


async def test_a_copy_that_is_assigned_elsewhere_and_current_there_goes_with_the_old_node(
    surplus: Surplus,
) -> None:
    plan = await surplus.replacement().plan()
    old = surplus.old.connect_string
    assert f"remove partitions 1, which are not assigned to it, from {old}, and delete their files" in plan
    result = await surplus.replacement().run()
    assert surplus.taken_from_old() == [0, 1]
    assert result == ((0,), 0, None, {})


async def test_what_is_removed_from_the_old_node_is_removed_under_the_admin_lock(surplus: Surplus) -> None:
    """Else the same partition may be assigned to the node between the proof and the deletion."""
    lock, held = ClusterPaths(ROOT).admin_lock, []

    class Orders(list[Any]):
        def append(self, message: Any) -> None:
            held.append(lock in surplus.store._tree.tree())
            super().append(message)

    surplus.old.orders = Orders()
    await surplus.replacement().run()
    assert held == [True, True]


def known_again(surplus: Surplus, new: FakeNode, **options: Any) -> NodeReplacement:
    return NodeReplacement(
        surplus.store,
        ROOT,
        surplus.old.connect_string,
        new.connect_string,
        options.pop("admin_port", new.admin_port),
        tls=NO_TLS,
        options=ReplaceOptions(copy=False, timeout_seconds=5.0, **options),
    )


@pytest.mark.parametrize("run", [False, True])
async def test_a_plan_is_refused_where_a_run_is(surplus: Surplus, run: bool) -> None:
    """Here: by what is known of the new node. Nothing was changed then."""
    other = surplus.others[0]
    maps = await read_maps(surplus.store, ClusterPaths(ROOT))
    for replacement, text in (
        (known_again(surplus, surplus.elsewhere), "is in group 1 already, not in 0"),
        (
            known_again(surplus, surplus.elsewhere, admin_port=other.admin_port, group=1),
            f"is known with admin port {surplus.elsewhere.admin_port} already, not {other.admin_port}",
        ),
        (known_again(surplus, other, group=2), "would have one replica less"),
    ):
        with pytest.raises(AdminError, match=text):
            await (replacement.run() if run else replacement.plan())
    assert await read_maps(surplus.store, ClusterPaths(ROOT)) == maps
    assert surplus.taken_from_old() == []


async def test_the_copy_of_a_group_is_given_up_if_that_is_meant(surplus: Surplus) -> None:
    other = surplus.others[0]
    plan = await known_again(surplus, other, group=2, drop_group_copy=True).plan()
    assert not [line for line in plan if line.startswith("add ")], "it is a replica already"
    result = await known_again(surplus, other, group=2, drop_group_copy=True).run()
    assert result.moved == (0,)
    maps = await read_maps(surplus.store, ClusterPaths(ROOT))
    assert set(assignments.replicas(maps.partitions, 0)) == {one.connect_string for one in surplus.others}


async def test_a_run_that_was_interrupted_within_one_group_needs_no_option(surplus: Surplus) -> None:
    new = surplus.new
    await nodes.add_storage_node(surplus.store, ROOT, new.connect_string, new.admin_port, 0)
    new.status, new.session = {0: True}, SessionInfo(3, -1, -1)
    await assignments.assign(surplus.store, ROOT, [0], new.connect_string, tls=NO_TLS)
    await surplus.next_session()
    result = await surplus.replacement().run()
    assert result.moved == (0,)


async def test_an_old_node_that_is_not_known_is_named(surplus: Surplus) -> None:
    known = surplus.others[0]
    for begin in (NodeReplacement.plan, NodeReplacement.run):
        replacement = NodeReplacement(
            surplus.store, ROOT, "nosuch:7000", known.connect_string, known.admin_port, tls=NO_TLS
        )
        await begin(replacement)
        assert not replacement.old_is_known
    replacement = surplus.replacement()
    await replacement.run()
    assert replacement.old_is_known
