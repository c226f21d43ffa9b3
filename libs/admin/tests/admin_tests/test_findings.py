"""The findings: a rule, evidence and a next step for everything that can be wrong."""

from dataclasses import replace

import pytest

from waltz_admin.cluster_status import (
    DISK_IS_FULL,
    ClusterStatus,
    PartitionStatus,
    Replica,
    ServerStatus,
    StorageStatus,
)
from waltz_admin.copies import NodePartition
from waltz_admin.disks import NodeDisk
from waltz_admin.findings.explain import explain
from waltz_admin.findings.finding import MAX_EVIDENCE, Finding, Severity
from waltz_admin.findings.placement import placement
from waltz_admin.findings.rules import RULES, find, problems
from waltz_admin.not_open import NotOpen
from waltz_cluster.replica_rules import Standing
from waltz_cluster.serializers import ReplicaState
from waltz_protocol.types import UNRESOLVED, Endpoint, PartitionId

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
    assert find(status(partition(Replica("a:1", Standing.CURRENT)))) == []


def test_every_standing_has_a_next_step_and_equal_ones_are_said_once() -> None:
    for standing in Standing:
        found = find(status(*(partition(Replica("a:1", standing, lag=5), number=n) for n in range(3))))
        reported_elsewhere = Standing.UNREACHABLE, Standing.UNKNOWN, Standing.AHEAD
        expected = 0 if standing in (Standing.CURRENT, *reported_elsewhere) else 1
        assert len(found) == expected, standing
        if found:
            assert "a:1, partitions 0-2:" in found[0].finding
            assert found[0].next_step


def test_a_node_that_does_not_answer_is_looked_for_and_not_emptied() -> None:
    """Nobody knows that its disk is lost: on an empty directory it would be one copy less."""
    silent = Replica("b:1", Standing.UNREACHABLE), Replica("c:1", Standing.UNREACHABLE)
    partitions = (
        partition(Replica("a:1", Standing.CURRENT), *silent, number=n, healthy=False) for n in range(100)
    )
    found = find(status(*partitions, error="no answer within 2 s"))
    assert [one.finding for one in found] == [
        "no partition can take a write: bad, it waits for b:1",
        "storage node a:1 does not answer: no answer within 2 s",
    ]
    steps = " ".join(one.next_step for one in found)
    assert "machine is up and its process runs" in steps
    assert "empty" not in steps


def test_forgetting_is_the_last_resort() -> None:
    lost, silent = Replica("b:1", Standing.SET_BACK), Replica("c:1", Standing.UNREACHABLE)
    both = find(status(partition(Replica("a:1", Standing.CURRENT), lost, silent, healthy=False)))
    assert "bring c:1 back with its data first; only if that is impossible" in both[0].next_step
    one = find(
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
    found = find(status(partition(ahead, lost, silent, number=3, healthy=False)))
    assert "waltz zk accept-restored -p 3 --dry-run" in found[0].next_step
    assert "forget" not in found[0].next_step


def test_servers_and_nodes() -> None:
    findings = find(status(partition(Replica("a:1", Standing.CURRENT)), error="refused"))
    assert "does not answer: refused" in findings[0].finding
    assert "no server" in find(status(server=None))[0].finding
    assert "does not answer" in find(status(server=ServerStatus(1, SERVER, (), None)))[0].finding
    assert "does not reach a:1" in find(status(server=ServerStatus(1, SERVER, (), ("a:1",))))[0].finding
    assert (
        "start a server"
        in find(status(partition(Replica("a:1", Standing.CURRENT), healthy=False, server=None)))[0].next_step
    )
    assert "assign-partition -p 0" in find(status(partition()))[0].next_step


def test_disks_that_are_full_or_soon_will_be() -> None:
    def findings(days: float | None, full: bool) -> list[str]:
        disk = NodeDisk(1, 1.0, 60.0, 10, 5, 1, days, full)
        node = StorageStatus("a:1", 1, (0,), None, disk)
        page = ClusterStatus("test", "key", (FINE,), (node,), (partition(Replica("a:1", Standing.CURRENT)),))
        return [f"{one.finding} {one.next_step}" for one in find(page)]

    assert findings(None, False) == findings(20.0, False) == []
    assert "full in 3.2 days" in findings(3.2, False)[0]
    assert "accepts appends again within seconds" in findings(0.0, True)[0]


def test_a_full_disk_is_reported_of_the_node_alone() -> None:
    """Not of its copies too, with a command that would change nothing."""
    disk = NodeDisk(1, 1.0, 60.0, 10, 1, 1, 0.0, True)
    copy = Replica("a:1", Standing.UNAVAILABLE, DISK_IS_FULL)
    page = replace(status(partition(copy)), nodes=(StorageStatus("a:1", 1, (0,), None, disk),))
    (found,) = find(page)
    assert found.rule.name == "disk-full"
    assert explain(page, 0, [found]).findings == (found,)


def replicas(*standings: Standing) -> list[Replica]:
    return [Replica(f"{letter}:1", one, lag=3) for letter, one in zip("abc", standings, strict=False)]


C, U, S, R = Standing.CURRENT, Standing.UNREACHABLE, Standing.SET_BACK, Standing.REFUSED
FULL = NodeDisk(1, 1.0, 60.0, 10, 1, 1, 0.0, True)
FILLS = NodeDisk(1, 1.0, 60.0, 10, 5, 1, 3.0, False)


def with_disk(disk: NodeDisk) -> ClusterStatus:
    node = StorageStatus("a:1", 1, (0,), None, disk)
    return ClusterStatus("test", "key", (FINE,), (node,), (partition(*replicas(C, C, C)),))


TURNED_AWAY = "server server:7: cannot connect to server:7: the peer's certificate is not accepted"
AWAY = ServerStatus(1, SERVER, (0,), None, (), TURNED_AWAY, True)
NODE_AWAY = StorageStatus("a:1", 1, (0,), "storage node a:2: cannot connect: refused", turned_away=True)


def shut_out(*others: StorageStatus, own_certificate: str = "") -> ClusterStatus:
    """The one server and the one node are there, and let us not in."""
    one = replace(partition(*replicas(Standing.UNKNOWN), healthy=False), unknown=True, waits_for="")
    page = status(one, server=AWAY)
    return replace(page, nodes=(NODE_AWAY, *others), own_certificate=own_certificate)


STAGED: dict[str, ClusterStatus] = {
    "not-let-in": shut_out(),
    "no-server": status(server=None),
    "assignment-stale": replace(
        status(partition(*replicas(C, C, C))),
        servers=(FINE, ServerStatus(2, Endpoint("other", 7), (), ())),
        left_out=(2,),
    ),
    "zookeeper-older": status(partition(*replicas(Standing.AHEAD, C, C), healthy=False)),
    "fault": status(
        replace(partition(*replicas(C, C, C), healthy=False), not_open=NotOpen(0, "fault", "why"))
    ),
    "undecidable": status(partition(*replicas(C, S, U), healthy=False)),
    "no-quorum": status(partition(*replicas(C, U, U), healthy=False)),
    "no-owner": status(partition(*replicas(C, C, C), healthy=False, server=None)),
    "not-open": status(partition(*replicas(C, C, C), healthy=False)),
    "no-replica": status(partition()),
    "node-silent": status(error="gone"),
    "disk-full": with_disk(FULL),
    "disk-fills": with_disk(FILLS),
    "server-silent": status(server=ServerStatus(1, SERVER, (0,), None)),
    "server-cut-off": status(server=ServerStatus(1, SERVER, (0,), ("a:1",))),
    "replica-change": status(
        PartitionStatus(0, SERVER, True, 1, tuple(replicas(C, C, C)), changing="the last session had a, b")
    ),
    "replica-unassigned": status(partition(*replicas(C, C, Standing.UNASSIGNED))),
    "replica-set-back": status(partition(*replicas(C, C, S))),
    "replica-unavailable": status(partition(*replicas(C, C, Standing.UNAVAILABLE))),
    "replica-refused": status(partition(*replicas(C, C, R))),
    "replica-behind": status(partition(*replicas(C, C, Standing.BEHIND))),
    "replica-incomplete": status(partition(*replicas(C, C, Standing.INCOMPLETE))),
    "replica-surplus": replace(
        status(partition(*replicas(C, C, C))), nodes=(StorageStatus("d:1", 1, (1,), None, surplus=(0,)),)
    ),
    "not-started": status(partition(*replicas(C, C, Standing.NOT_STARTED))),
}
"""One state for each rule."""


def test_every_rule_has_a_name_of_its_own_and_a_state_that_provokes_it() -> None:
    assert [rule.name for rule in RULES] == list(STAGED)


@pytest.mark.parametrize("name", STAGED)
def test_a_rule_finds_its_state_with_evidence_and_a_next_step(name: str) -> None:
    found = find(STAGED[name])
    assert name in [one.rule.name for one in found]
    for one in found:
        assert one.finding
        assert one.next_step
        assert one.evidence, "a finding without evidence cannot be checked"
        assert one.rule in RULES
        assert one.partitions or one.nodes or one.servers or not STAGED[name].partitions
    assert found == find(STAGED[name]), "the same state gives the same findings"


@pytest.mark.parametrize("name", STAGED)
def test_a_rule_finds_nothing_in_a_healthy_cluster(name: str) -> None:
    well = status(*(partition(*replicas(C, C, C), number=n) for n in range(3)))
    assert name not in [one.rule.name for one in find(well)]


def test_who_is_not_let_in_reports_no_outage() -> None:
    """When the certificate of the tools has expired the cluster may be well: that alone is reported, and what
    is advised would not stop it."""
    (found,) = find(shut_out(own_certificate="the certificate /tls/admin expired on 2026-11-28"))
    assert found.finding == "this command is not let in: the certificate /tls/admin expired on 2026-11-28"
    assert found.next_step.startswith("renew it (`waltz tls renew`) and ask again; restart and stop nothing")
    assert (found.partitions, found.nodes, found.servers) == ((0,), ("a:1",), ("server:7",))
    assert found.evidence == (TURNED_AWAY, "storage node a:2: cannot connect: refused")
    (found,) = find(shut_out())
    assert "`waltz tls show`" in found.next_step
    explained = explain(shut_out(), 0, [found])
    assert explained.verdict == "it is not known whether partition 0 takes writes: bad"
    assert explained.findings == (found,)


def test_where_somebody_answers_those_who_let_us_not_in_are_named_with_the_reason() -> None:
    """And what no answer came from is not called stopped, nor to be restarted."""
    silent = replace(shut_out(), nodes=(StorageStatus("a:1", 1, (0,), None),))
    (found,) = find(silent)
    assert found.rule.name == "server-silent"
    assert found.finding == (
        "server server:7 is registered but cannot be asked: cannot connect to server:7: "
        "the peer's certificate is not accepted"
    )
    assert "restart and stop nothing" in found.next_step
    (found,) = find(replace(status(partition(*replicas(C, C, Standing.UNKNOWN))), nodes=(NODE_AWAY,)))
    assert found.finding == "storage node a:1 cannot be asked: admin port a:2: cannot connect: refused"
    assert "restart and stop nothing" in found.next_step
    dead = ServerStatus(1, SERVER, (0,), None, (), f"server {SERVER}: no answer within 2 s")
    (found,) = find(status(server=dead))
    assert found.finding == "server server:7 is registered but does not answer: no answer within 2 s"


def test_a_node_that_is_away_is_reported_next_to_those_who_let_us_not_in() -> None:
    gone = StorageStatus("b:1", 2, (0,), "storage node b:2: no answer within 2 s")
    first, second = find(shut_out(gone))
    assert (first.rule.name, first.nodes) == ("not-let-in", ("a:1",))
    assert (second.rule.name, second.nodes) == ("node-silent", ("b:1",))


def test_a_server_that_the_assignment_does_not_know_leads_to_who_makes_it() -> None:
    (found,) = find(STAGED["assignment-stale"])
    assert found.finding == "server other:7: registered, and not in the assignment"
    assert found.next_step.startswith("read the log of server server:7, which makes the assignment because")
    assert found.servers == ("other:7",)
    (found,) = find(replace(STAGED["assignment-stale"], left_out=()))
    assert found.finding == "the assignment was made for other servers than those registered"
    assert found.servers == ("server:7",)


def test_what_is_only_to_be_expected_is_no_problem() -> None:
    soon = find(STAGED["disk-fills"])
    assert [one.rule.severity for one in soon] == [Severity.SOON]
    assert problems(soon) == []
    assert len(problems(find(STAGED["disk-full"]))) == 1


def test_a_node_of_another_cluster_is_not_called_silent() -> None:
    node = StorageStatus("a:1", 1, (0,), "refused to open: its key is another one", refused=True)
    (found,) = find(replace(status(partition(*replicas(C, C, C))), nodes=(node,)))
    assert found.rule.name == "node-silent"
    assert found.finding == "storage node a:1 refuses this cluster: refused to open: its key is another one"
    assert "`waltz zk rebuild`" in found.next_step
    assert "machine is up" not in found.next_step


def test_of_a_copy_that_no_list_names_the_command_that_removes_it_is_named() -> None:
    (found,) = find(STAGED["replica-surplus"])
    assert found.finding == "storage node d:1 has partition 0, and is not assigned to have it"
    assert "`waltz storage sync-partitions --remove-surplus`" in found.next_step
    assert not problems([found])


def test_evidence_is_bounded_and_what_is_left_out_is_counted() -> None:
    many = status(*(partition(Replica("a:1", Standing.BEHIND, "late", lag=n), number=n) for n in range(1000)))
    (finding,) = find(many)
    assert len(finding.evidence) == MAX_EVIDENCE + 1
    assert finding.evidence[-1] == f"and {1000 - MAX_EVIDENCE} more like these"
    assert len(finding.partitions) == 1000
    assert finding.nodes == ("a:1",)


def test_a_partition_that_is_well_is_explained_with_its_votes() -> None:
    copy = NodePartition(PartitionId(0), 5, 40, 41, True, True, 90, 4096, 5)
    listed = ReplicaState(PartitionId(0), "b:1", 4, 77)
    three = (
        Replica("a:1", C, "", 100, 0, copy, ReplicaState(PartitionId(0), "a:1", 5)),
        Replica("b:1", Standing.BEHIND, "it dropped out in session 4 at 77", 77, 23, copy, listed),
        Replica("c:1", C, "", 100, 0, copy, ReplicaState(PartitionId(0), "c:1", -1, 77)),
    )
    page = status(PartitionStatus(0, SERVER, True, 5, three, "b:1 is behind", "", 3))
    found = explain(page, 0, find(page))
    assert found.takes_writes
    assert found.verdict == (
        "partition 0 takes writes: server server:7 serves it in store session 5, 2 of 3 replicas current, 2 needed"
    )
    assert (found.server, found.generation, found.session_id, found.needed) == ("server:7", 3, 5, 2)
    assert [(v.node, v.counts, v.why) for v in found.votes] == [
        ("a:1", True, ""),
        ("b:1", False, "it dropped out in session 4 at 77"),
        ("c:1", True, ""),
    ]
    assert [v.recorded for v in found.votes] == [
        "took part in session 5",
        "dropped out in session 4 at 77",
        "not among the replicas of the last session",
    ]
    assert (found.votes[1].low_water_mark, found.votes[1].local_low_water_mark) == (40, 41)
    assert (found.votes[1].last_transaction, found.votes[1].lag, found.votes[1].log_bytes) == (77, 23, 4096)
    assert [one.rule.name for one in found.findings] == ["replica-behind"]


def test_a_partition_that_is_closed_is_explained_in_the_words_of_the_findings() -> None:
    page = status(partition(*replicas(C, S, U), healthy=False), partition(*replicas(C, C, C), number=1))
    found = explain(page, 0, find(page))
    assert not found.takes_writes
    assert found.verdict == "partition 0 takes no writes: bad"
    assert found.waits_for == "b:1"
    assert [one.rule.name for one in found.findings] == ["undecidable", "replica-set-back"]
    assert [v.why for v in found.votes] == ["", "set back", "unreachable"]
    other = explain(page, 1, find(page))
    assert (other.findings, other.takes_writes) == ((), True)
    with pytest.raises(ValueError, match="there is no partition 2: the cluster has 2"):
        explain(page, 2, [])


def test_of_two_lost_disks_both_are_named_with_the_way_out() -> None:
    found = find(status(partition(*replicas(S, S, C), healthy=False)))
    assert found[0].rule.name == "undecidable"
    for text in (
        "bring a:1, b:1 back",
        "forget -s a:1 -p 0 --accept-data-loss",
        "forget -s b:1 -p 0 --accept-data-loss",
    ):
        assert text in found[0].next_step
    many = (partition(*replicas(S, S, C), number=n, healthy=n == 2) for n in range(4))
    first, *rest = find(status(*many))
    assert "forget -s b:1 -p 0-1,3 --accept-data-loss" in first.next_step
    steps = {one.partitions: one.next_step for one in rest if one.nodes == ("a:1",)}
    assert "leave it running" not in steps[0, 1, 3]
    assert "leave it running" in steps[2,]
    assert find(status(partition(*replicas(S, C, C), healthy=False)))[0].rule.name == "not-open"


def listed(replica: Replica, session: int = 4, closing: int = UNRESOLVED) -> Replica:
    return replace(replica, listed=ReplicaState(PartitionId(0), replica.node, session, closing))


def step_of(*held: Replica) -> tuple[str, str]:
    first = find(status(partition(*held, healthy=False)))[0]
    return first.rule.name, first.next_step


def test_where_nobody_is_left_one_copy_is_kept_the_longest_first() -> None:
    lengths = {"a:1": 7, "b:1": 9, "c:1": None}
    all_back = [replace(one, last_transaction=lengths[one.node]) for one in replicas(S, S, S)]
    rule, step = step_of(*all_back)
    assert rule == "undecidable"
    assert "forget --keep b:1 -p 0 --accept-data-loss" in step
    assert "most records first: b:1, a:1, c:1" in step
    assert "forget -s" not in step
    rule, step = step_of(*all_back[:2], Replica("c:1", U))
    assert "bring c:1 back with its data first" in step
    assert "forget --keep b:1 -p 0 --lost c:1 --accept-data-loss" in step
    assert "--lost" not in step_of(*all_back[:2], Replica("c:1", Standing.UNAVAILABLE))[1]


def test_whoever_lets_us_not_in_may_decide_and_no_copy_is_given_up() -> None:
    rule, step = step_of(Replica("a:1", S), *(Replica(node, Standing.UNKNOWN) for node in ("b:1", "c:1")))
    assert rule == "not-open"
    assert step == "see to it that b:1, c:1 let this command in: what they hold is not known"


def test_the_last_one_listed_was_set_back_and_nothing_is_waited_for() -> None:
    """The others were forgotten: two of three are to be filled, and there is nobody to decide what with."""
    behind = [replace(one, last_transaction=9) for one in replicas(Standing.BEHIND, Standing.BEHIND)]
    lost = listed(Replica("c:1", S, last_transaction=7))
    first, *rest = find(status(partition(*behind, lost, healthy=False)))
    assert first.rule.name == "undecidable"
    assert "forget --keep a:1 -p 0 --accept-data-loss" in first.next_step
    assert all("wait" not in one.next_step for one in rest)
    rule, step = step_of(listed(Replica("a:1", C)), behind[1], lost)  # one was forgotten, and two were listed
    assert rule == "undecidable"
    assert step.endswith("only if that is impossible: `waltz storage forget -s c:1 -p 0 --accept-data-loss`")


def test_who_had_dropped_out_counts_up_to_there_whatever_became_of_it() -> None:
    voter, dropped = listed(Replica("a:1", C)), listed(Replica("b:1", S), 3, 10)
    assert step_of(voter, dropped, listed(Replica("c:1", U)))[0] == "no-quorum"
    rule, step = step_of(
        listed(Replica("a:1", S)), *(listed(Replica(n, Standing.BEHIND), 3, 10) for n in "bc")
    )
    assert rule == "undecidable"
    assert "bring a:1 back" in step
    assert step.endswith("`waltz storage forget -s a:1 -p 0 --accept-data-loss`")


def test_while_a_quorum_is_left_nothing_is_given_up() -> None:
    five = [Replica(f"{n}:1", one) for n, one in zip("abcde", (S, U, C, C, C), strict=True)]
    assert "forget" not in " ".join(one.next_step for one in find(status(partition(*five, healthy=False))))


def test_nodes_without_a_copy_are_given_theirs_first() -> None:
    """As on new disks: only then is it known that what they held is lost."""
    lacks = Standing.UNASSIGNED
    for standings in ((lacks, lacks, C), (S, lacks, C)):
        found = find(status(partition(*replicas(*standings), healthy=False)))
        assert found[0].next_step.startswith("`waltz storage sync-partitions`")
    assert find(status(partition(*replicas(U, lacks, C), healthy=False)))[0].rule.name == "no-quorum"
    assert find(status(partition(*replicas(C, lacks, C), healthy=False)))[0].next_step.startswith("wait")


def test_a_finding_is_about_those_who_share_its_cause() -> None:
    def of(partitions: list[Finding]) -> list[tuple[int, ...]]:
        return [one.partitions for one in partitions if one.rule.name == "no-quorum"]

    same = [partition(*replicas(C, U, U), number=n, healthy=False) for n in range(3)]
    other = PartitionStatus(3, SERVER, False, 1, tuple(replicas(C, U, U)), "worse", "b:1")
    assert of(find(status(*same, other))) == [(0, 1, 2), (3,)]


def placed(one: PartitionStatus, *servers: ServerStatus, groups: tuple[int, ...] = (1, 2)) -> list[str]:
    nodes = tuple(
        StorageStatus(replica.node, group, (0,), None)
        for replica, group in zip(one.replicas, groups, strict=False)
    )
    return list(placement(ClusterStatus("test", "key", servers, nodes, (one, one, one)), one))


def test_why_a_partition_is_where_it_is() -> None:
    copies = (Replica("a:1", Standing.CURRENT), Replica("b:1", Standing.CURRENT))
    one = replace(partition(*copies), generation=3, recorded_at=1_700_000_000.0)
    other = Endpoint("other", 7)
    plain, rival = ServerStatus(1, SERVER, (0, 1), ()), ServerStatus(2, other, (2,), ())
    why = placed(one, plain, rival)
    assert "no server prefers it" in why[0]
    assert "has 2 of 3 partitions, its share of 2 servers is 1 or 2" in why[0]
    assert why[1] == "generation 3: it has changed its owner 2 times"
    assert (
        why[2] == "its 2 copies are on the nodes that ZooKeeper assigns it to: a:1 (group 1), b:1 (group 2)"
    )
    assert "another group" in why[3]
    assert why[4].endswith("store session 1, were last written at 2023-11-14 22:13:20+00:00")
    liked = replace(plain, preferred=(0,))
    assert placed(one, liked, rival)[0] == "server server:7 (id 1) is the one that prefers it"
    both = placed(one, liked, replace(rival, preferred=(0,)))
    assert (
        both[0]
        == "server server:7 (id 1) is the one with the lowest id of those that prefer it (also: other:7)"
    )
    assert (
        "server other:7 prefers it: it moves there" in placed(one, plain, replace(rival, preferred=(0,)))[0]
    )
    assert "no server is registered" in placed(replace(one, server=None, generation=None))[0]
    assert "names no server that is registered" in placed(replace(one, server=None), rival)[0]
    assert "two of them are in one group" in placed(one, plain, groups=(1, 1))[3]
    assert placed(partition(), plain)[2] == "no storage node is assigned to it in ZooKeeper"
