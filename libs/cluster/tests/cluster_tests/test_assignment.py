"""The assignment policy: the layout's examples, the mended remainder, and its invariants over random
histories."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_tests.manager_helpers import ROOT, memory_cluster, start_server, until
from waltz_cluster import assignment as policy
from waltz_cluster.errors import ClusterError, InsufficientPartitionsError
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_protocol.types import Endpoint, Generation, PartitionId

Preferences = dict[int, list[int]]


def members(preferences: Preferences) -> dict[int, ServerDescriptor]:
    return {
        server_id: ServerDescriptor(
            server_id, Endpoint("h", 8000 + server_id), tuple(PartitionId(p) for p in preferred)
        )
        for server_id, preferred in preferences.items()
    }


def assign(
    old: PartitionAssignment, count: int, preferences: Preferences, cversion: int = 1
) -> PartitionAssignment:
    return policy.assign(cversion, old, count, members(preferences), lambda given: None)


def show(assignment: PartitionAssignment) -> dict[int, str]:
    return {s: " ".join(f"p{p}g{g}" for p, g in given) for s, given in assignment.servers.items()}


def test_examples_of_the_layout() -> None:
    first = assign(PartitionAssignment(), 4, {1: [], 2: []})
    assert show(first) == {1: "p0g1 p1g1", 2: "p2g1 p3g1"}
    second = assign(first, 4, {1: [], 2: [], 3: []})
    assert show(second) == {1: "p0g1 p1g1", 2: "p2g1", 3: "p3g2"}
    third = assign(second, 4, {2: [], 3: []})
    assert show(third) == {2: "p2g1 p0g2", 3: "p3g2 p1g2"}
    assert show(assign(PartitionAssignment(), 4, {1: [0, 1, 2], 2: []})) == {1: "p0g1 p1g1 p2g1", 2: "p3g1"}
    assert show(assign(PartitionAssignment(), 2, {1: [], 2: [], 3: []})) == {1: "p0g1", 2: "p1g1", 3: ""}


@pytest.mark.parametrize(
    ("count", "preferences"),
    [
        (3, {1: [0], 2: []}),
        (5, {1: [0, 1], 2: []}),
        (8, {1: [0, 1], 2: [], 3: []}),
        (4, {1: [], 2: [3], 3: []}),
    ],
)
def test_zookeeper_6_01_preferences_with_remainder(count: int, preferences: Preferences) -> None:
    result = assign(PartitionAssignment(), count, preferences)
    assert sorted(p for given in result.servers.values() for p, _ in given) == list(range(count))
    sizes = [len(given) for given in result.servers.values()]
    assert max(sizes) - min(sizes) <= 1


def test_for_a_partition_wanted_by_several_the_lowest_id_wins() -> None:
    result = assign(PartitionAssignment(), 2, {7: [1, 0, 99], 3: [1]})
    assert show(result) == {3: "p1g1", 7: "p0g1"}


def test_fewer_partitions_than_before_are_an_error() -> None:
    with pytest.raises(InsufficientPartitionsError):
        assign(PartitionAssignment(0, 5, {}), 4, {1: []})
    with pytest.raises(ClusterError):
        assign(PartitionAssignment(), 4, {})


def test_no_partitions() -> None:
    assert show(assign(PartitionAssignment(), 0, {1: [], 2: []})) == {1: "", 2: ""}


def test_generations_known_from_elsewhere_are_not_restarted() -> None:
    floor = {PartitionId(0): Generation(7), PartitionId(1): Generation(3), PartitionId(2): Generation(-1)}
    old = PartitionAssignment(1, 3, {4: ((PartitionId(1), Generation(9)),)})
    extended = policy.with_generations(old, floor)
    result = assign(extended, 3, {4: []})
    assert show(result) == {4: "p1g9 p0g8 p2g1"}
    assert policy.with_generations(old, {PartitionId(1): Generation(3)}) is old


@pytest.mark.parametrize(
    ("preferences", "shown"),
    [
        ({1: [], 2: []}, {1: "p0g2147483647 p1g1", 2: "p2g3 p3g1"}),
        ({2: [0], 3: []}, {1: "p0g2147483647", 2: "p2g3 p3g1", 3: "p1g2"}),
        ({1: [], 2: [0, 1, 3]}, {1: "p0g2147483647 p2g4", 2: "p1g2 p3g1"}),
    ],
    ids=["its server is there", "its server is gone", "another one wants it"],
)
def test_a_partition_in_its_last_generation_stays_and_holds_up_no_other(
    preferences: Preferences, shown: dict[int, str]
) -> None:
    last = policy.LAST_GENERATION
    old = PartitionAssignment(
        1,
        4,
        {
            1: ((PartitionId(0), last), (PartitionId(1), Generation(1))),
            2: ((PartitionId(2), Generation(3)), (PartitionId(3), Generation(1))),
        },
    )
    result = assign(old, 4, preferences)
    assert show(result) == shown
    assert PartitionAssignment.from_bytes(result.to_bytes()) == result
    assert policy.at_their_last(result) == {0: 1}
    assert policy.same_owners(assign(result, 4, preferences), result)


async def test_a_generation_that_has_no_next_one_stops_no_other_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    zookeeper = await memory_cluster(2)
    held = {7: ((PartitionId(0), Generation(2**31 - 1)), (PartitionId(1), Generation(4)))}
    await zookeeper.session().set(f"{ROOT}/serverDescriptors", PartitionAssignment(-1, 2, held).to_bytes())
    server = await start_server(zookeeper, 8001)
    await until(lambda: server.partitions == {1: 5})
    assert "partition 0 stays with server 7" in caplog.text
    await server.stop()


def test_the_shuffle_is_injected() -> None:
    rng = random.Random(3)
    one = policy.assign(1, PartitionAssignment(), 8, members({1: []}), rng.shuffle)
    two = policy.assign(1, PartitionAssignment(), 8, members({1: []}), random.Random(3).shuffle)
    assert one == two
    assert one != assign(PartitionAssignment(), 8, {1: []})
    assert policy.same_owners(one, assign(PartitionAssignment(), 8, {1: []}))


def flat(assignment: PartitionAssignment) -> dict[int, tuple[int, int]]:
    return {p: (server, gen) for server, given in assignment.servers.items() for p, gen in given}


COUNT = st.integers(1, 24)
SERVERS = st.sets(st.integers(1, 9), min_size=1, max_size=6)


@given(COUNT, st.lists(st.tuples(SERVERS, st.data()), min_size=1, max_size=6), st.randoms())
def test_invariants_over_any_history(
    count: int, steps: list[tuple[set[int], st.DataObject]], rng: random.Random
) -> None:
    current = PartitionAssignment()
    for cversion, (servers, data) in enumerate(steps):
        ids = st.lists(st.integers(0, count + 1), unique=True, max_size=count)
        preferences = {s: data.draw(ids) for s in sorted(servers)}
        result = policy.assign(cversion, current, count, members(preferences), rng.shuffle)
        before, after = flat(current), flat(result)
        assert sorted(p for given in result.servers.values() for p, _ in given) == list(range(count))
        assert set(result.servers) == servers
        for p, (server, generation) in after.items():
            old_server, old_generation = before.get(p, (None, 0))
            assert generation == old_generation + (server != old_server)
            wanting = [s for s in sorted(servers) if p in preferences[s]]
            assert not wanting or server == wanting[0]
        share, rest = divmod(count, len(servers))
        for s, held in result.servers.items():
            preferred = sum(after[p][0] == s for p in preferences[s] if p < count)
            assert len(held) <= max(preferred, share + (rest > 0))
        current = PartitionAssignment.from_bytes(result.to_bytes())


@given(COUNT, SERVERS, SERVERS)
def test_the_fewest_partitions_move(count: int, old_servers: set[int], new_servers: set[int]) -> None:
    old = assign(PartitionAssignment(), count, {s: [] for s in sorted(old_servers)})
    new = assign(old, count, {s: [] for s in sorted(new_servers)})
    moved = sum(flat(old)[p][0] != flat(new)[p][0] for p in range(count))
    share, rest = divmod(count, len(new_servers))
    held = sorted((len(old.servers.get(s, ())) for s in new_servers), reverse=True)
    stay = sum(min(have, share + (i < rest)) for i, have in enumerate(held))
    assert moved == count - stay
    sizes = [len(given) for given in new.servers.values()]
    assert max(sizes) - min(sizes) <= 1
