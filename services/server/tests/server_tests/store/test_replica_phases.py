"""The phases of a replica in a session: which are left and which last."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from server_tests.store.fakes import NAMES, PARTITION, ROOT, Cluster, entries, until
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.types import RecordHeader, SessionInfo
from waltz_server.store.api import ReplicaPhase, ReplicaStatus, StoreSettings
from waltz_server.store.metadata_keeper import MetadataKeeper
from waltz_server.store.recovery import Recovery
from waltz_server.store.replica_connection import ReplicaDirectory, ReplicaLink
from waltz_server.store.replica_recovery import ReplicaRecovery
from waltz_server.store.session import StoreSession
from waltz_server.store.session_context import SessionContext
from waltz_server.store.waiting import Signal

pytestmark = pytest.mark.looptime


class NoSession:
    """A run that takes note of nothing."""

    def __init__(self) -> None:
        self.changed = Signal()
        self.session: StoreSession | None = None

    def headers_of(self, name: str, first: int, count: int) -> list[RecordHeader] | None:
        return None

    def link_of(self, name: str) -> ReplicaLink | None:
        raise NotImplementedError(name)

    def look(self, name: str) -> Callable[[int | RequestFailedError], None]:
        raise NotImplementedError(name)

    def suspect(self) -> None:
        raise NotImplementedError

    def replica_out(self, name: str, reason: str) -> None:
        raise NotImplementedError(name, reason)

    def note(self, event: str, **values: str) -> None:
        raise NotImplementedError(event, values)


async def member() -> ReplicaRecovery:
    rng, settings = random.Random(1), StoreSettings()

    async def nobody(_endpoint: object) -> ReplicaLink:
        raise NotImplementedError

    context = SessionContext(
        PARTITION,
        settings,
        ReplicaDirectory(nobody, settings=settings, rng=rng),
        MetadataKeeper(StoreMetadata(MemoryZooKeeper().session(), ROOT), PARTITION, rng),
        rng,
    )
    recovery = Recovery(
        partition_id=PARTITION,
        session_id=1,
        replicas=NAMES,
        metadata=PartitionMetadata(1, 1, {}),
        recorded_session=0,
        acknowledged=-1,
    )
    return ReplicaRecovery(NoSession(), context, recovery, 1, NAMES[0])


async def test_an_absent_replica_comes_back_and_its_reason_goes() -> None:
    replica = await member()
    assert (replica.phase, replica.tried) == (ReplicaPhase.CONNECTING, False)
    replica.become_absent("no answer")
    assert (replica.phase, replica.tried, replica.reason) == (ReplicaPhase.ABSENT, True, "no answer")
    replica.become_recovering(SessionInfo(-1, -1, -1), -1)
    assert (replica.phase, replica.reason) == (ReplicaPhase.RECOVERING, "")


async def test_a_failed_replica_stays_failed_for_its_first_reason() -> None:
    replica = await member()
    replica.become_recovering(SessionInfo(-1, -1, -1), -1)
    replica.become_failed("the connection was closed before it could vote")
    replica.become_absent("the connection was closed")
    replica.become_failed("the connection was closed")
    assert replica.phase is ReplicaPhase.FAILED
    assert replica.reason == "the connection was closed before it could vote"


async def test_a_replica_that_fails_while_it_votes_is_shown_as_failed() -> None:
    async with Cluster() as cluster:
        server = cluster.server(settings=StoreSettings(initial_retry_interval_ms=5_000))
        await server.opened()
        await server.append(entries(1))
        cluster.nodes["c:1"].kill()
        await until(lambda: server.store.replicas[2].state is not ReplicaPhase.VOTING)
        status = server.store.replicas[2]
        assert (status.connect_string, status.state) == ("c:1", ReplicaPhase.FAILED)
        assert "the connection was closed" in status.reason
        assert [replica.state for replica in server.store.replicas[:2]] == [ReplicaPhase.VOTING] * 2
        assert [replica.counts for replica in server.store.replicas] == [True, True, False]
        await until(lambda: server.store.session_id == 1)


def test_a_replica_that_votes_and_is_silent_does_not_count() -> None:
    """While nobody appends, only the idle check sees that."""
    voting = ReplicaStatus("a:1", ReplicaPhase.VOTING, 5, 0, 1.0, "")
    assert voting.counts
    assert not replace(voting, reason="does not answer").counts
    assert not replace(voting, state=ReplicaPhase.CATCHING_UP).counts


def test_the_texts_of_the_phases_are_those_of_the_health_report() -> None:
    assert [str(phase) for phase in ReplicaPhase] == [
        "connecting",
        "recovering",
        "voting",
        "catching_up",
        "refused",
        "absent",
        "failed",
    ]
