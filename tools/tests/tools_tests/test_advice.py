"""`waltz doctor`: a next step for everything that can be wrong."""

from waltz_admin.status import (
    ClusterStatus,
    PartitionStatus,
    Replica,
    ServerStatus,
    Standing,
    StorageStatus,
)
from waltz_protocol.types import Endpoint
from waltz_tools.advice import advise

SERVER = Endpoint("server", 7)
FINE = ServerStatus(1, SERVER, (0,), ())


def status(
    *partitions: PartitionStatus, server: ServerStatus | None = FINE, error: str | None = None
) -> ClusterStatus:
    servers = () if server is None else (server,)
    return ClusterStatus("test", "key", servers, (StorageStatus("a:1", 1, (0,), error),), partitions)


def partition(
    *replicas: Replica, number: int = 0, healthy: bool = True, server: Endpoint | None = SERVER
) -> PartitionStatus:
    return PartitionStatus(number, server, healthy, 1, replicas, "" if healthy else "bad", "b:1")


def test_nothing_to_say_of_a_healthy_cluster() -> None:
    assert advise(status(partition(Replica("a:1", Standing.CURRENT)))) == []


def test_every_standing_has_a_next_step_and_equal_ones_are_said_once() -> None:
    for standing in Standing:
        found = advise(status(*(partition(Replica("a:1", standing, lag=5), number=n) for n in range(3))))
        expected = 0 if standing in (Standing.CURRENT, Standing.UNREACHABLE) else 1
        assert len(found) == expected, standing
        if found:
            assert "a:1, partitions 0,1,2:" in found[0].finding
            assert found[0].next_step


def test_forgetting_is_the_last_resort() -> None:
    lost, silent = Replica("b:1", Standing.SET_BACK), Replica("c:1", Standing.UNREACHABLE)
    both = advise(status(partition(Replica("a:1", Standing.CURRENT), lost, silent, healthy=False)))
    assert "bring c:1 back with its data first; only if that is impossible" in both[0].next_step
    one = advise(
        status(
            partition(
                Replica("a:1", Standing.CURRENT), Replica("b:1", Standing.CURRENT), silent, healthy=False
            )
        )
    )
    assert "forget" not in one[0].next_step


def test_servers_and_nodes() -> None:
    findings = advise(status(partition(Replica("a:1", Standing.CURRENT)), error="refused"))
    assert "does not answer: refused" in findings[0].finding
    assert "no server" in advise(status(server=None))[0].finding
    assert "does not answer" in advise(status(server=ServerStatus(1, SERVER, (), None)))[0].finding
    assert "does not reach a:1" in advise(status(server=ServerStatus(1, SERVER, (), ("a:1",))))[0].finding
    assert (
        "start a server"
        in advise(status(partition(Replica("a:1", Standing.CURRENT), healthy=False, server=None)))[
            0
        ].next_step
    )
    assert "assign-partition -p 0" in advise(status(partition()))[0].next_step
