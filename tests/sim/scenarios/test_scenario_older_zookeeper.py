"""ZooKeeper is restored from an older copy. No disk is lost; one node is merely down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.sim.cluster.admin import NO_TLS, RefusedError
from tests.sim.cluster.server_role import CLUSTER_ROOT
from tests.sim.cluster.shape import ADMIN_PORT
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.kernel.disk import Seconds
from tests.sim.scenarios.stage import Stage, play, seeds
from waltz_admin import storage_admin
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.types import UNRESOLVED, Endpoint
from waltz_server.store.api import StoreState


def closed(stage: Stage, role: StorageRole) -> bool:
    metadata = stage.state.metadata(0)
    return (
        metadata is not None and metadata.replicas[role.connect_string].closing_high_water_mark != UNRESOLVED
    )


def down(role: StorageRole) -> None:
    role.hold()
    role.kill()


def data(stage: Stage, path: str) -> bytes:
    node = stage.zookeeper.find(path)
    assert node is not None
    assert node.data is not None
    return node.data


def put_back(stage: Stage, *copies: tuple[str, bytes]) -> None:
    """All servers end, ZooKeeper is older, they start again."""
    for server in stage.servers.values():
        server.hold()
        server.kill()
    for path, copy in copies:
        stage.zookeeper.set(path, copy, -1)
    for server in stage.servers.values():
        server.release()


def faults(stage: Stage) -> Iterator[str]:
    for server in stage.servers.values():
        store = server.store(0)
        if store is not None and store.state is StoreState.FAULT:
            yield store.state_reason


async def accepted(stage: Stage) -> None:
    await stage.admin.accept_restored(0)
    await stage.until(stage.serving, 60.0, "the partition is served again")


@pytest.mark.parametrize("behind", [1, 2, 5])
@pytest.mark.parametrize("seed", seeds(2))
def test_scenario_zookeeper_is_older_by_some_sessions(seed: int, behind: int) -> None:
    """Before: one session old, the same id was given out twice and 20 acknowledged records were cut; older
    than that, each restart of a server took the next number until it had passed the fences, and then cut.

    Here it is a fault through any number of restarts, and accepting what the nodes hold is the way out."""

    async def script(stage: Stage) -> None:
        a, b, c = stage.rng.sample(list(stage.storage.values()), 3)
        path = stage.state.paths.partition(0)
        assert len(await stage.write(10)) == 10
        await stage.whole()
        down(c)
        await stage.until(lambda: closed(stage, c), 60, "c is closed")
        assert len(await stage.write(10)) == 10
        backup = data(stage, path)
        then = PartitionMetadata.from_bytes(backup)
        c.release()
        if behind > 1:
            await stage.whole()
            while stage.session_id() < then.session_id + behind - 1:
                before = stage.session_id()
                stage.owner().kill()
                await stage.until(
                    lambda: stage.session_id() > before and stage.serving(),  # noqa: B023
                    60,
                    "another session",
                )
            await stage.whole()
        down(b)
        await stage.until(lambda: closed(stage, b), 60, "b is closed")
        await stage.until(lambda: stage.serving() and not closed(stage, c), 60, "c takes part")
        assert len(await stage.write(20)) == 20  # acknowledged by a and c
        down(a)
        b.release()
        put_back(stage, (path, backup))
        await stage.until(lambda: any(faults(stage)), 60, "a fault")
        for _ in range(6):
            for server in stage.servers.values():
                server.kill()
            await asyncio.sleep(5)
            assert not stage.serving()
        said = " ".join(faults(stage))
        assert f"{c.connect_string} has completed session" in said
        assert stage.session_id() == then.session_id
        assert c.node is not None
        assert c.node.manager.partitions[0].max_txid == 39
        with pytest.raises(RefusedError, match="bring back"):
            down(b)
            await stage.admin.accept_restored(0)
        b.release()
        a.release()
        await asyncio.sleep(2)
        await accepted(stage)
        with pytest.raises(RefusedError, match="no node knows more"):
            await stage.admin.accept_restored(0)
        assert len(await stage.write(5)) == 5

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(3))
def test_scenario_zookeeper_is_older_than_a_listing_of_the_same_session(seed: int) -> None:
    """A replica came late and was listed; what it helped to acknowledge was cut, as if it had dropped out
    before."""

    async def script(stage: Stage) -> None:
        a, b, c = stage.rng.sample(list(stage.storage.values()), 3)
        path = stage.state.paths.partition(0)
        assert len(await stage.write(10)) == 10
        await stage.whole()
        down(c)
        await stage.until(lambda: closed(stage, c), 60, "c is closed")
        assert len(await stage.write(10)) == 10
        backup = data(stage, path)
        c.release()
        await stage.until(lambda: not closed(stage, c), 60, "c is listed late")
        session = stage.session_id()
        assert PartitionMetadata.from_bytes(backup).session_id == session
        b.disk.sync_seconds = Seconds(1.2, 1.4)  # slower than the power cut, faster than a request may take
        assert len(await stage.write(5)) == 5
        assert stage.session_id() == session
        stage.dark([a, b])
        b.heal_disk()
        put_back(stage, (path, backup))
        stage.light([b])
        await stage.until(stage.serving, 60.0, "the partition is served")
        assert len(await stage.write(5)) == 5
        stage.light([a])

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(2))
def test_scenario_the_assignments_are_older_too(seed: int) -> None:
    """A replica was replaced after the copy was made: the old tree names the one that was removed, and not
    the one that was added."""

    async def script(stage: Stage) -> None:
        gone, added, *stay = stage.rng.sample(list(stage.storage.values()), 4)
        await stage.admin.unassign(0, added.name)
        await stage.admin.sync_partitions(30)
        await stage.whole()
        assert len(await stage.write(10)) == 10
        paths = (stage.state.paths.partition(0), stage.state.paths.assignment)
        copies = [(path, data(stage, path)) for path in paths]
        await stage.admin.assign(0, added.name)
        await stage.whole()
        await stage.admin.unassign(0, gone.name)
        await stage.whole()
        await stage.admin.run(
            "remove",
            lambda store: storage_admin.set_assignment(
                store,
                CLUSTER_ROOT,
                Endpoint(gone.name, ADMIN_PORT),
                [0],
                False,
                tls=NO_TLS,
                delete_files=True,
            ),
        )
        down(stay[0])
        assert (
            len(await stage.write(10)) == 10
        )  # acknowledged by the other one that stays, and by the added one
        put_back(stage, *copies)
        await asyncio.sleep(20)
        assert (
            not stage.serving()
        )  # one that knows more, one that has no copy, one that is down: no majority is asked
        stage.light([stay[0]])
        await stage.until(lambda: any(faults(stage)), 60, "a fault")
        report = await stage.admin.run(
            "remove surplus",
            lambda store: storage_admin.sync_partitions(store, CLUSTER_ROOT, tls=NO_TLS, remove_surplus=True),
        )
        assert report.unassigned == {}  # it knows of a later session than ZooKeeper
        await accepted(stage)
        assert added.name in stage.state.assigned(0)
        await stage.admin.sync_partitions(30)
        assert len(await stage.write(5)) == 5

    play(seed, script, storage_nodes=4)
