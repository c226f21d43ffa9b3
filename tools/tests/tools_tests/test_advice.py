"""`waltz doctor`: a next step for everything that can be wrong."""

import json

from waltz_admin.disks import NodeDisk
from waltz_admin.status import (
    ClusterStatus,
    PartitionStatus,
    Replica,
    ServerStatus,
    StorageStatus,
)
from waltz_cluster.replica_rules import Standing
from waltz_protocol.types import Endpoint
from waltz_tools.advice import advise
from waltz_tools.cli.figures import Days, Seconds, SizeBytes, days_or_none, size_or_none

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
        expected = 0 if standing in (Standing.CURRENT, Standing.UNREACHABLE, Standing.AHEAD) else 1
        assert len(found) == expected, standing
        if found:
            assert "a:1, partitions 0,1,2:" in found[0].finding
            assert found[0].next_step


def test_a_node_that_does_not_answer_is_looked_for_and_not_emptied() -> None:
    """Nobody knows that its disk is lost: on an empty directory it would be one copy less."""
    silent = Replica("b:1", Standing.UNREACHABLE), Replica("c:1", Standing.UNREACHABLE)
    partitions = (
        partition(Replica("a:1", Standing.CURRENT), *silent, number=n, healthy=False) for n in range(100)
    )
    found = advise(status(*partitions, error="no answer within 2 s"))
    assert [advice.finding for advice in found] == [
        "no partition can take a write: bad, it waits for b:1",
        "storage node a:1 does not answer: no answer within 2 s",
    ]
    steps = " ".join(advice.next_step for advice in found)
    assert "machine is up and its process runs" in steps
    assert "empty" not in steps


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


def test_a_zookeeper_that_is_too_old_is_put_right_before_anything_else() -> None:
    ahead, lost = (
        Replica("a:1", Standing.AHEAD, "it has completed session 7"),
        Replica("b:1", Standing.SET_BACK),
    )
    silent = Replica("c:1", Standing.UNREACHABLE)
    found = advise(status(partition(ahead, lost, silent, number=3, healthy=False)))
    assert "waltz zk accept-restored -p 3 --dry-run" in found[0].next_step
    assert "forget" not in found[0].next_step


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


def test_disks_that_are_full_or_soon_will_be() -> None:
    def findings(days: float | None, full: bool) -> list[str]:
        disk = NodeDisk(1, 1.0, 60.0, 10, 5, 1, days, full)
        node = StorageStatus("a:1", 1, (0,), None, disk)
        page = ClusterStatus("test", "key", (FINE,), (node,), (partition(Replica("a:1", Standing.CURRENT)),))
        return [f"{advice.finding} {advice.next_step}" for advice in advise(page)]

    assert findings(None, False) == findings(20.0, False) == []
    assert "full in 3.2 days" in findings(3.2, False)[0]
    assert "accepts appends again within seconds" in findings(0.0, True)[0]


def test_figures_have_units_in_tables_only() -> None:
    sizes = (0, 1023, 1024, 1536, 5 << 30, 3 << 60)
    assert [str(SizeBytes(n)) for n in sizes] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
        "3,072.0 PiB",
    ]
    assert [str(Days(n)) for n in (0.05, 1.5, 2.0, 1234.5)] == ["1.2 h", "36.0 h", "2 days", "1,234 days"]
    assert [str(Seconds(n)) for n in (0.0, 119, 120, 7200)] == ["0 s", "119 s", "2 min", "2 h"]
    assert json.dumps([SizeBytes(1536), Days(1.5), Seconds(7.5)]) == "[1536, 1.5, 7.5]"
    assert (size_or_none(None), days_or_none(None)) == (None, None)
    assert (size_or_none(2.6), days_or_none(0.12345)) == (3, 0.123)
