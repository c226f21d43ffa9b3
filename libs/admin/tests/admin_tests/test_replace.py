"""Replacing a node while another administrator does the same: one of them may be refused, neither fails."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from admin_tests.fake_processes import FakeNode
from waltz_admin import assignments, nodes, seeding
from waltz_admin.errors import AdminError
from waltz_admin.replace import NodeReplacement, ReplaceEvent, ReplaceOptions
from waltz_admin.tree import read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.messages import admin
from waltz_protocol.types import UNRESOLVED, PartitionId

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
