"""Partitions given to other servers without anybody coming or going."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_tests.manager_helpers import ROOT, assignment_of, memory_cluster, start_server, until
from waltz_cluster.assignment import LAST_GENERATION, assign, same_owners
from waltz_cluster.errors import ClusterError, VersionConflictError
from waltz_cluster.moving import ServerMove, move_partitions, moved
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_protocol.types import Endpoint, PartitionId


def members(*server_ids: int, prefers: Mapping[int, int] | None = None) -> dict[int, ServerDescriptor]:
    wanted = prefers or {}
    return {
        one: ServerDescriptor(
            one, Endpoint("h", 8000 + one), (PartitionId(wanted[one]),) if one in wanted else ()
        )
        for one in server_ids
    }


def fair(partitions: int, *server_ids: int) -> PartitionAssignment:
    return assign(7, PartitionAssignment(), partitions, members(*server_ids), lambda _: None)


def test_what_moves_gets_its_next_generation_and_the_rest_stays() -> None:
    found = moved(fair(4, 1, 2), members(1, 2), [ServerMove(0, 1, 2), ServerMove(3, 2, 1)])
    assert found.cversion == 7
    assert {server: dict(found.partitions_of(server)) for server in (1, 2)} == {
        1: {1: 1, 3: 2},
        2: {2: 1, 0: 2},
    }


@pytest.mark.parametrize(
    ("moves", "prefers", "says"),
    [
        ([ServerMove(0, 2, 1)], {}, "partition 0 is not with server 2"),
        ([ServerMove(0, 9, 1)], {}, "partition 0 is not with server 9"),
        ([ServerMove(0, 1, 9)], {}, "server 9 is not registered"),
        ([ServerMove(0, 1, 2), ServerMove(0, 1, 2)], {}, "partition 0 is not with server 1"),
        ([ServerMove(0, 1, 2)], {}, "would move again"),
        ([ServerMove(0, 1, 2), ServerMove(2, 2, 1)], {1: 0}, "would move again"),
    ],
    ids=["not there", "nobody", "to nobody", "twice", "more than a share", "against a preference"],
)
def test_what_would_not_last_is_refused(moves: list[ServerMove], prefers: dict[int, int], says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        moved(fair(4, 1, 2), members(1, 2, prefers=prefers), moves)


def test_a_partition_in_its_last_generation_is_not_moved() -> None:
    held = PartitionAssignment(7, 2, {1: ((PartitionId(0), LAST_GENERATION),), 2: ()})
    with pytest.raises(ClusterError, match="partition 0 stays with server 1: it is in its last generation"):
        moved(held, members(1, 2), [ServerMove(0, 1, 2)])


@given(st.integers(1, 12), st.integers(2, 5), st.randoms(use_true_random=False))
def test_the_policy_of_every_server_keeps_what_was_moved(
    count: int, servers: int, chance: random.Random
) -> None:
    """So nothing has to be left behind to hold it, and nothing jumps back."""
    present = members(*range(1, servers + 1))
    before = fair(count, *present)
    owners = {int(p): server for server in present for p in before.partitions_of(server)}
    one, other = chance.choice(list(owners)), chance.choice(list(owners))
    if owners[one] == owners[other]:
        return
    moves = [ServerMove(one, owners[one], owners[other]), ServerMove(other, owners[other], owners[one])]
    after = moved(before, present, moves)
    assert same_owners(assign(8, after, count, present, chance.shuffle), after)


async def test_servers_adopt_it_and_keep_it_when_preferences_are_evaluated() -> None:
    zookeeper = await memory_cluster(4)
    store = zookeeper.session()
    one, two = await start_server(zookeeper, 8001), await start_server(zookeeper, 8002)
    await until(lambda: len(one.partitions) == 2 and len(two.partitions) == 2)
    ours, theirs = one.joined.server_id, two.joined.server_id
    hot, cold = min(one.partitions), min(two.partitions)
    cversion = assignment_of(zookeeper).cversion
    moves = [ServerMove(hot, ours, theirs), ServerMove(cold, theirs, ours)]
    await move_partitions(store, ROOT, moves, cversion=cversion)
    await until(lambda: hot in two.partitions and cold in one.partitions)
    assert hot not in one.partitions
    await one.joined.add_preferred([cold])  # writes the assignment anew
    await one.joined.remove_preferred([cold])
    assert (hot in two.partitions, cold in one.partitions) == (True, True)
    with pytest.raises(ClusterError, match="is not with server"):
        await move_partitions(store, ROOT, moves, cversion=cversion)
    await two.joined.unregister()
    await until(lambda: len(one.partitions) == 4)
    with pytest.raises(VersionConflictError, match="have changed"):
        await move_partitions(store, ROOT, moves, cversion=cversion)
    await one.stop()
    await two.stop()
    await store.close()
