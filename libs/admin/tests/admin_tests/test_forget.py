"""Giving up a replica loses data only when asked to, and never by accident."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from admin_tests.fake_processes import FakeNode
from waltz_admin import seeding
from waltz_admin.errors import AdminError, UnsafeChangeError
from waltz_admin.forget import (
    Forgotten,
    LastReplicaError,
    PartlyForgottenError,
    UnknownReplicaError,
    forget_replica,
    without_replica,
)
from waltz_admin.safety import AdminPortProbe
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.replica_rules import Answer, NoAnswer, ReplicaAnswer
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Generation, PartitionId

ROOT = "/test"
LOST = "h:3"


class Nodes:
    """Everybody answers but the silent ones."""

    def __init__(self, *silent: str) -> None:
        self.silent = silent
        self.answers: dict[str, ReplicaAnswer] = {}

    async def ask(self, connect_string: str, partition_id: int) -> Answer:
        return (
            NoAnswer()
            if connect_string in self.silent
            else self.answers.get(connect_string, ReplicaAnswer(4, True, True))
        )


def _metadata(*ports: int) -> PartitionMetadata:
    replicas = {f"h:{port}": ReplicaState(PartitionId(0), f"h:{port}", 4) for port in ports}
    return PartitionMetadata(Generation(2), 4, replicas)


async def _cluster(partitions: int) -> tuple[ZooKeeperStore, StoreMetadata]:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", partitions)
    return store, StoreMetadata(store, ROOT)


async def test_forgotten_replica_leaves_the_metadata_of_the_named_partitions_only() -> None:
    store, metadata = await _cluster(3)
    for partition in (0, 1):
        await metadata.create_partition(partition, _metadata(1, 2, 3))
    assert (await forget_replica(store, ROOT, LOST, [0], probe=Nodes(LOST))).forgotten == (0,)
    assert (await metadata.read_partition(0))[0] == _metadata(1, 2)
    assert (await metadata.read_partition(1))[0] == _metadata(1, 2, 3)


async def test_safety_a1_nothing_is_forgotten_while_another_replica_is_silent() -> None:
    store, metadata = await _cluster(1)
    await metadata.create_partition(0, _metadata(1, 2, 3))
    with pytest.raises(UnsafeChangeError, match="h:2 does not answer"):
        await forget_replica(store, ROOT, LOST, [0], probe=Nodes(LOST, "h:2"))
    assert (await metadata.read_partition(0))[0] == _metadata(1, 2, 3)


@pytest.mark.parametrize(
    "lost", [ReplicaAnswer(-1, True, True), ReplicaAnswer(4, False, True), ReplicaAnswer(4, True, False)]
)
async def test_safety_a1_a_replica_that_is_well_is_not_forgotten(lost: ReplicaAnswer) -> None:
    """An empty disk, one out of service and a hole may be given up; the only good copy under a wrong name may
    not."""
    store, metadata = await _cluster(1)
    await metadata.create_partition(0, _metadata(1, 2, 3))
    nodes = Nodes()
    with pytest.raises(UnsafeChangeError, match="h:3 answers and holds what it should"):
        await forget_replica(store, ROOT, LOST, [0], probe=nodes)
    assert (await metadata.read_partition(0))[0] == _metadata(1, 2, 3)
    nodes.answers[LOST] = lost
    assert (await forget_replica(store, ROOT, LOST, [0], probe=nodes)).forgotten == (0,)


async def test_where_it_is_well_it_is_kept() -> None:
    """The command is given for all partitions of a node, some of which were refilled meanwhile."""
    store, metadata = await _cluster(2)
    await metadata.create_partition(0, _metadata(1, 2, 3))
    older = {name: replace(state, session_id=2) for name, state in _metadata(1, 2, 3).replicas.items()}
    await metadata.create_partition(1, replace(_metadata(1, 2, 3), replicas=older))
    nodes = Nodes()
    nodes.answers[LOST] = ReplicaAnswer(3, True, True)
    assert await forget_replica(store, ROOT, LOST, [0, 1], probe=nodes) == Forgotten((0,), (1,), ())
    assert LOST in (await metadata.read_partition(1))[0].replicas  # type: ignore[union-attr]


async def test_nothing_is_forgotten_when_one_partition_cannot_be_changed() -> None:
    store, metadata = await _cluster(4)
    await metadata.create_partition(0, _metadata(1, 2, 3))
    await metadata.create_partition(1, _metadata(3))
    with pytest.raises(LastReplicaError):
        await forget_replica(store, ROOT, LOST, [0, 1], probe=Nodes(LOST))
    with pytest.raises(AdminError, match="partition 2 has no metadata"):
        await forget_replica(store, ROOT, LOST, [0, 2], probe=Nodes(LOST))
    with pytest.raises(UnknownReplicaError, match="h:9 is not a replica"):
        await forget_replica(store, ROOT, "h:9", [0], probe=Nodes())
    with pytest.raises(AdminError, match="no partition 4"):
        await forget_replica(store, ROOT, LOST, [0, 4], probe=Nodes())
    assert (await metadata.read_partition(0))[0] == _metadata(1, 2, 3)


class Busy(Nodes):
    """While partition 1 is asked about, its server begins a new session: `times` times, then it rests."""

    def __init__(
        self, metadata: StoreMetadata, times: int, changed: Callable[[PartitionMetadata], PartitionMetadata]
    ) -> None:
        super().__init__(LOST)
        self.metadata, self.left, self.changed = metadata, times, changed

    async def ask(self, connect_string: str, partition_id: int) -> Answer:
        answer = await super().ask(connect_string, partition_id)
        if partition_id == 1 and connect_string == LOST and self.left:
            self.left -= 1
            current, version = await self.metadata.read_partition(1)
            assert current is not None
            await self.metadata.write_partition(1, self.changed(current), version)
        return answer


def _next_session(metadata: PartitionMetadata) -> PartitionMetadata:
    return replace(metadata, session_id=metadata.session_id + 1)


async def test_a_server_that_begins_sessions_meanwhile_does_not_stop_it() -> None:
    """A server that cannot decide tries again and again, and takes a new session id each time."""
    store, metadata = await _cluster(3)
    for partition in range(3):
        await metadata.create_partition(partition, _metadata(1, 2, 3))
    found = await forget_replica(store, ROOT, LOST, [0, 1, 2], probe=Busy(metadata, 5, _next_session))
    assert found == Forgotten((0, 1, 2), (), ())
    assert (await metadata.read_partition(1))[0] == replace(_metadata(1, 2), session_id=9)


async def test_what_was_changed_meanwhile_is_checked_again() -> None:
    store, metadata = await _cluster(3)
    for partition in range(3):
        await metadata.create_partition(partition, _metadata(1, 2, 3))
    away = Busy(metadata, 1, lambda current: without_replica(current, LOST))
    assert await forget_replica(store, ROOT, LOST, [0, 1, 2], probe=away) == Forgotten((0, 2), (), (1,))
    again = Nodes(LOST)
    with pytest.raises(UnknownReplicaError, match="known: h:1, h:2"):
        await forget_replica(store, ROOT, LOST, [0, 1, 2], probe=again)


async def test_a_server_that_never_rests_is_given_up_and_what_was_done_is_said() -> None:
    store, metadata = await _cluster(3)
    for partition in range(3):
        await metadata.create_partition(partition, _metadata(1, 2, 3))
    with pytest.raises(
        PartlyForgottenError, match=r"partition 1: its server writes .* forgotten in partitions 0 already"
    ):
        await forget_replica(store, ROOT, LOST, [0, 1, 2], probe=Busy(metadata, 1000, _next_session))


async def test_one_that_is_well_by_the_time_of_the_write_is_kept_and_that_is_no_success() -> None:
    store, metadata = await _cluster(2)
    await metadata.create_partition(1, _metadata(1, 2, 3))

    def refilled(current: PartitionMetadata) -> PartitionMetadata:
        nodes.silent = ()
        return _next_session(current)

    nodes = Busy(metadata, 1, refilled)
    with pytest.raises(UnsafeChangeError, match="h:3 answers and holds what it should in partitions 1"):
        await forget_replica(store, ROOT, LOST, [1], probe=nodes)


async def test_safety_a1_another_replica_that_is_not_whole_is_named() -> None:
    """It answers, so it does not hold the command up; but it may be the second disk that was lost."""
    store, metadata = await _cluster(1)
    await metadata.create_partition(0, _metadata(1, 2, 3))
    nodes = Nodes(LOST)
    nodes.answers["h:2"] = ReplicaAnswer(-1, True, True)
    assert await forget_replica(store, ROOT, LOST, [0], probe=nodes) == Forgotten((0,), (), (), ("h:2",))


async def test_it_may_be_given_again_after_it_was_cut_short() -> None:
    store, metadata = await _cluster(2)
    await metadata.create_partition(0, _metadata(1, 2))
    await metadata.create_partition(1, _metadata(1, 2, 3))
    assert await forget_replica(store, ROOT, LOST, [0, 1], probe=Nodes(LOST)) == Forgotten((1,), (), (0,))


class Unreachable(Nodes):
    """No connection to the lost one, until it was asked `times` times; each attempt takes its time limit."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left, self.asked = times, list[int]()

    async def ask(self, connect_string: str, partition_id: int) -> Answer:
        if connect_string == LOST:
            self.asked.append(partition_id)
            if len(self.asked) <= self.left:
                return NoAnswer("no connection", unreachable=True)
        return await super().ask(connect_string, partition_id)


async def test_a_node_that_is_unreachable_is_not_waited_for_in_every_partition() -> None:
    store, metadata = await _cluster(5)
    for partition in range(5):
        await metadata.create_partition(partition, _metadata(1, 2, 3))
    nodes = Unreachable(1000)
    assert (await forget_replica(store, ROOT, LOST, range(5), probe=nodes)).forgotten == (0, 1, 2, 3, 4)
    assert nodes.asked == [0, 4]


async def test_safety_a1_a_node_that_is_back_by_the_end_of_the_checks_is_kept_where_it_is_well() -> None:
    store, metadata = await _cluster(3)
    for partition in range(3):
        await metadata.create_partition(partition, _metadata(1, 2, 3))
    nodes = Unreachable(1)
    with pytest.raises(UnsafeChangeError, match="holds what it should in partitions 0,1,2:"):
        await forget_replica(store, ROOT, LOST, range(3), probe=nodes)
    away_again = Unreachable(1)
    away_again.answers[LOST] = ReplicaAnswer(-1, True, True)
    assert (await forget_replica(store, ROOT, LOST, range(3), probe=away_again)).forgotten == (0, 1, 2)


async def test_safety_a1_one_copy_that_is_not_reported_says_nothing_of_the_others() -> None:
    """The node answers, and fails to read one of its copies."""
    store, metadata = await _cluster(3)
    for partition in range(3):
        await metadata.create_partition(partition, _metadata(1, 2, 3))

    class Failing(Nodes):
        async def ask(self, connect_string: str, partition_id: int) -> Answer:
            if (connect_string, partition_id) == (LOST, 0):
                return NoAnswer("Input/output error")
            return await super().ask(connect_string, partition_id)

    found = await forget_replica(store, ROOT, LOST, range(3), probe=Failing())
    assert found == Forgotten((0,), (1, 2), ())


async def test_only_a_node_without_a_connection_is_unreachable() -> None:
    key = UUID(int=7)
    async with FakeNode(key).running() as node:
        probe = AdminPortProbe({node.connect_string: node.admin_port}, key, 1, TlsSettings(enabled=False))
        node.refuse = "Input/output error"
        assert await probe.ask(node.connect_string, 0) == NoAnswer("Input/output error", unreachable=False)
    answer = await probe.ask(node.connect_string, 0)
    assert isinstance(answer, NoAnswer)
    assert answer.unreachable


def test_without_replica() -> None:
    smaller = without_replica(_metadata(1, 2, 3), "h:2")
    assert smaller == _metadata(1, 3)
    with pytest.raises(UnknownReplicaError, match="known: h:1, h:2, h:3"):
        without_replica(_metadata(1, 2, 3), "h:7")
    with pytest.raises(LastReplicaError):
        without_replica(_metadata(1), "h:1")
