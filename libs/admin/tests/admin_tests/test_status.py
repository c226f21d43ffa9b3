"""The status page from answers: every standing of a replica, every reason of a partition."""

from dataclasses import replace
from uuid import UUID

import pytest

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.copies import NodePartition
from waltz_admin.disks import NodeDisk, parse_disk
from waltz_admin.findings.explain import explain
from waltz_admin.findings.fault import ZOOKEEPER_OLDER
from waltz_admin.findings.rules import find, problems
from waltz_admin.not_open import NotOpen
from waltz_admin.status import Summary, summarize
from waltz_admin.storage_admin import NodeStatus
from waltz_admin.tree import NodeMaps
from waltz_admin.verify import Answers, Check, NodeAnswer, ServerAnswer, VerifyReport, check
from waltz_admin.view import ClusterView
from waltz_cluster.replica_rules import ReplicaAnswer, Standing
from waltz_cluster.serializers import (
    ClusterParams,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaState,
    ServerDescriptor,
    StoreParams,
)
from waltz_protocol.types import Endpoint, Generation, PartitionId

NODES = ("a:1", "b:1", "c:1")
P = PartitionId(0)
SERVER = Endpoint("server", 7)


def metadata(**states: tuple[int, int | None]) -> PartitionMetadata:
    """Session 5; replica states by node letter: (session, closing mark or None for taking part)."""
    session = 5
    replicas = {}
    for letter in "abc":
        at, closing = states.get(letter, (session, None))
        node = f"{letter}:1"
        replicas[node] = ReplicaState(P, node, at) if closing is None else ReplicaState(P, node, at, closing)
    return PartitionMetadata(1, session, replicas)


def held(
    session: int = 5, last: int | None = 100, *, assigned: bool = True, available: bool = True
) -> NodePartition:
    return NodePartition(P, session, 10, 10, assigned, available, last)


def _view(known: PartitionMetadata | str | None, *, registered: bool) -> ClusterView:
    return ClusterView(
        ClusterParams("test", 1),
        StoreParams(UUID(int=7), 1),
        (ServerDescriptor(1, SERVER),) if registered else (),
        PartitionAssignment(1, 1, {1: ((P, Generation(3)),)}),
        registered,
        NodeMaps(dict.fromkeys(NODES, 1), dict.fromkeys(NODES, (P,)), dict.fromkeys(NODES, 2), (0, 0, 0)),
        {P: known},
    )


def page(
    known: PartitionMetadata | str | None,
    nodes: dict[str, NodePartition | str | None],
    *,
    healthy: bool | None = True,
    registered: bool = True,
    connected: bool = True,
    disks: dict[str, NodeDisk | None] | None = None,
    refused: dict[str, str] | None = None,
    not_open: NotOpen | None = None,
) -> ClusterStatus:
    """A cluster of one partition; a text instead of a node's answer is its error. `healthy` None: no
    answer."""
    view = _view(known, registered=registered)
    reached = dict.fromkeys(NODES, connected)
    answer = ServerAnswer() if healthy is None else ServerAnswer(frozenset({0}), reached, {0: healthy})
    statuses = {}
    for node in NODES:
        told = nodes.get(node[0], held())
        endpoint = Endpoint(node[0], 2)
        if isinstance(told, str):
            statuses[node] = NodeStatus(endpoint, error=told)
        else:
            disk = (disks or {}).get(node[0])
            statuses[node] = NodeStatus(endpoint, (told,) if told is not None else (), disk=disk)
    answers = {node: _answer(nodes.get(node[0], held())) for node in NODES}
    left_out = {(0, node): reason for node, reason in (refused or {}).items()}
    reported = {} if not_open is None else {0: not_open}
    return summarize(view, Answers({1: answer}, answers, left_out, reported), statuses)


def _answer(told: NodePartition | str | None) -> NodeAnswer:
    """What the node says on its admin port, besides its metrics."""
    if isinstance(told, str):
        return NodeAnswer()
    if told is None or not told.assigned:
        return NodeAnswer({})
    return NodeAnswer({0: told.available}, {0: ReplicaAnswer(told.session_id, told.available, True)})


def test_a_healthy_cluster_has_no_problems() -> None:
    status = page(metadata(), {"b": held(last=90)})
    assert not problems(find(status))
    (partition,) = status.partitions
    assert (partition.healthy, partition.current, partition.session_id, partition.server) == (
        True,
        3,
        5,
        SERVER,
    )
    assert [(r.last_transaction, r.lag) for r in partition.replicas] == [(100, 0), (90, 10), (100, 0)]
    assert status.cluster_key == str(UUID(int=7))


@pytest.mark.parametrize(
    ("told", "states", "standing"),
    [
        (held(), {}, Standing.CURRENT),
        (held(session=5, available=False), {}, Standing.UNAVAILABLE),
        (held(assigned=False), {}, Standing.UNASSIGNED),
        (None, {}, Standing.UNASSIGNED),
        ("no answer", {}, Standing.UNREACHABLE),
        (held(session=-1), {}, Standing.SET_BACK),
        (held(session=4), {}, Standing.SET_BACK),
        (held(session=4), {"b": (4, 77)}, Standing.BEHIND),
        (held(session=4), {"b": (4, None)}, Standing.BEHIND),
    ],
)
def test_standing_of_a_replica(
    told: NodePartition | str | None, states: dict[str, tuple[int, int | None]], standing: Standing
) -> None:
    status = page(metadata(**states), {"b": told})
    replica = status.partitions[0].replicas[1]
    assert replica.standing is standing
    assert bool(problems(find(status))) == (standing is not Standing.CURRENT)


def test_a_replica_that_dropped_out_says_where() -> None:
    replica = page(metadata(b=(4, 77)), {"b": held(session=4, last=77)}).partitions[0].replicas[1]
    assert (replica.reason, replica.lag) == ("it dropped out in session 4 at 77", 23)


FORK = "its log differs from that of the other replicas (fork)"


def test_a_copy_that_its_server_refuses_is_not_called_behind() -> None:
    known = metadata(b=(4, 77))
    behind = page(known, {"b": held(session=4)}, refused={"b:1": FORK})
    (partition,) = behind.partitions
    assert partition.replicas[1].standing is Standing.REFUSED
    assert partition.problem == f"b:1 is refused ({FORK})"
    (vote,) = [one for one in explain(behind, 0, find(behind)).votes if not one.counts]
    assert (vote.node, vote.standing, vote.why) == ("b:1", Standing.REFUSED, FORK)
    assert (
        page(known, {"b": "no answer"}, refused={"b:1": FORK}).partitions[0].replicas[1].standing
        is Standing.UNREACHABLE
    )


def test_a_partition_that_is_closed_because_too_many_are_refused_waits_for_nothing() -> None:
    known, copy = metadata(b=(4, 77), c=(4, 77)), held(session=4)
    (partition,) = page(
        known, {"b": copy, "c": copy}, healthy=False, refused=dict.fromkeys(("b:1", "c:1"), FORK)
    ).partitions
    assert partition.problem == f"1 of 3 replicas, 2 needed: b:1 (refused: {FORK}), c:1 (refused: {FORK})"
    assert partition.waits_for == ""
    (partition,) = page(known, {"b": "no answer", "c": copy}, healthy=False, refused={"c:1": FORK}).partitions
    assert partition.waits_for == "1 more of b:1"


def test_a_refusal_that_comes_or_goes_is_seen_by_who_asks_again() -> None:
    """A healthy partition keeps its value only while the server says the same of its copies."""
    view, summary = _view(metadata(b=(4, 77)), registered=True), Summary()
    answer = ServerAnswer(frozenset({0}), dict.fromkeys(NODES, True), {0: True})
    nodes = {node: NodeStatus(Endpoint(node[0], 2), (held(),)) for node in NODES}
    answers = Answers({1: answer}, dict.fromkeys(NODES, _answer(held())))
    for refused, standing in (
        ({}, Standing.BEHIND),
        ({(0, "b:1"): FORK}, Standing.REFUSED),
        ({}, Standing.BEHIND),
    ):
        (partition,) = summary.make(view, replace(answers, refused=refused), nodes).partitions
        assert partition.replicas[1].standing is standing


def test_nodes_of_0_13_2_do_not_tell_their_lag() -> None:
    replica = page(metadata(), {"b": held(last=None)}).partitions[0].replicas[1]
    assert (replica.last_transaction, replica.lag) == (None, None)


def test_a_partition_without_quorum_names_whom_it_waits_for() -> None:
    status = page(metadata(), {"b": "gone", "c": held(session=-1)}, healthy=False)
    (partition,) = status.partitions
    assert not partition.healthy
    assert partition.waits_for == (
        "1 more of b:1, c:1 (lost or older disks do not count until the others have decided: c:1)"
    )
    assert problems(find(status))[0] == (
        "no partition can take a write: 1 of 3 replicas, 2 needed: "
        "b:1 (unreachable), c:1 (set back: its disk was lost or is an older copy), "
        f"it waits for {partition.waits_for}"
    )
    assert "storage node b:1 does not answer: gone" in problems(find(status))


def test_the_server_is_what_is_missing() -> None:
    gone = page(metadata(), {}, registered=False)
    assert problems(find(gone))[0] == "no server is registered in ZooKeeper"
    silent = page(metadata(), {}, healthy=None)
    assert silent.partitions[0].waits_for == "a server that takes it over"
    assert f"server {SERVER} is registered but does not answer" in problems(find(silent))


def test_servers_are_in_the_order_of_their_addresses_whenever_they_came() -> None:
    servers = (ServerDescriptor(1, SERVER), ServerDescriptor(2, Endpoint("server", 6)))
    view = replace(_view(None, registered=True), servers=servers)
    status = summarize(view, Answers({}, {}), {})
    assert [str(server.endpoint) for server in status.servers] == ["server:6", "server:7"]


def test_recovery_under_way_and_unreached_nodes() -> None:
    status = page(metadata(), {}, healthy=False, connected=False)
    assert status.partitions[0].waits_for == "the recovery of its store session"
    assert any("does not reach a:1, b:1, c:1" in line for line in problems(find(status)))


def test_a_change_of_replicas_that_is_not_complete_is_a_problem() -> None:
    known = metadata()
    left = {node: state for node, state in known.replicas.items() if node != "c:1"}
    status = page(PartitionMetadata(1, 5, left), {})
    assert "a change of its replicas is not complete" in problems(find(status))[0]
    assert status.partitions[0].replicas[2].reason == (
        "it is not among the replicas of the last session: it is filled first"
    )


def test_metadata_that_is_missing_or_unreadable() -> None:
    assert page(None, {}, healthy=False).partitions[0].replicas[0].standing is Standing.UNKNOWN
    assert "cannot be read: broken" in problems(find(page("broken", {}, healthy=False)))[0]


def test_the_figures_of_a_disk_are_read_and_a_full_one_is_a_problem() -> None:
    gauges: dict[str, object] = {
        "waltz-storage.log-bytes": {"value": 10},
        "waltz-storage.log-growth-bytes-per-day": {"value": None},
        "waltz-storage.log-growth-window-seconds": {"value": 12.5},
        "waltz-storage.disk-size-bytes": {"value": 1000},
        "waltz-storage.disk-free-bytes": {"value": 20},
        "waltz-storage.disk-reserve-bytes": {"value": 20},
        "waltz-storage.disk-days-to-full": {"value": 0.0},
        "waltz-storage.disk-full": {"value": True},
    }
    disk = parse_disk({"gauges": gauges})
    assert disk == NodeDisk(10, None, 12.5, 1000, 20, 20, 0.0, True)
    assert parse_disk({"gauges": {}}) is None, "release 0.13.2"
    assert parse_disk({}) is None
    status = page(metadata(), {"b": held()}, disks={"b": disk})
    (partition,) = status.partitions
    assert {r.node: r.standing for r in partition.replicas} == {
        "a:1": Standing.CURRENT,
        "b:1": Standing.UNAVAILABLE,
        "c:1": Standing.CURRENT,
    }
    assert "storage node b:1: its disk is full, its replicas take no appends" in problems(find(status))


def test_a_copy_that_is_assigned_on_a_node_and_not_in_zookeeper_is_named() -> None:
    """By status and by verify, until it is un-assigned; files that were left behind are none."""
    view = _view(metadata(), registered=True)
    others = dict.fromkeys(NODES, (P,)) | {"d:1": ()}
    view = replace(view, nodes=replace(view.nodes, partitions=others))
    answers = Answers({}, dict.fromkeys(NODES, _answer(held())) | {"d:1": _answer(held())})

    def found(copy: NodePartition) -> list[str]:
        nodes = {"d:1": NodeStatus(Endpoint("d", 2), (copy,))}
        return [one.rule.name for one in find(summarize(view, answers, nodes))]

    assert "replica-surplus" in found(held())
    assert "replica-surplus" not in found(held(assigned=False))
    reasons = {one.check: one.reason for one in check(P, view, answers)}
    assert reasons[Check.STORAGE_CONSISTENCY] == (
        "assigned on d:1 too, and not in ZooKeeper: `waltz storage sync-partitions --remove-surplus` removes it there"
    )


def test_two_hanging_nodes_are_said_once_by_status_and_by_verify() -> None:
    """A thousand partitions, two of three nodes silent: one line for the partitions, one for each node, none
    for the server that does not reach them either; and the words of verify are the same."""
    count = 1000
    known = metadata()
    ids = tuple(map(PartitionId, range(count)))
    view = replace(
        _view(None, registered=True),
        params=ClusterParams("test", count),
        assignment=PartitionAssignment(1, 1, {1: tuple((p, Generation(3)) for p in ids)}),
        nodes=NodeMaps(
            dict.fromkeys(NODES, 1), dict.fromkeys(NODES, ids), dict.fromkeys(NODES, 2), (0, 0, 0)
        ),
        metadata=dict.fromkeys(ids, known),
    )
    reached = {"a:1": False, "b:1": False, "c:1": True}
    answer = ServerAnswer(frozenset(range(count)), reached, dict.fromkeys(range(count), False))
    available = NodeAnswer(
        dict.fromkeys(range(count), True), dict.fromkeys(range(count), ReplicaAnswer(5, True, True))
    )
    answers = Answers({1: answer}, {"a:1": NodeAnswer(), "b:1": NodeAnswer(), "c:1": available})
    partitions = tuple(NodePartition(p, 5, 10, 10, True, True, 100) for p in ids)
    nodes = {
        "a:1": NodeStatus(Endpoint("a", 2), error="no answer within 2 s"),
        "b:1": NodeStatus(Endpoint("b", 2), error="no answer within 2 s"),
        "c:1": NodeStatus(Endpoint("c", 2), partitions),
    }
    assert problems(find(summarize(view, answers, nodes))) == [
        (
            "no partition can take a write: 1 of 3 replicas, 2 needed: a:1 (unreachable), b:1 (unreachable), "
            "it waits for 1 more of a:1, b:1"
        ),
        "storage node a:1 does not answer: no answer within 2 s",
        "storage node b:1 does not answer: no answer within 2 s",
    ]
    report = VerifyReport(tuple(result for p in ids for result in check(p, view, answers)))
    assert report.summary == [
        "no partition can take a write: 1 of 3 replicas, 2 needed: a:1 (does not answer), b:1 (does not answer)"
    ]
    # A node that answers us and not the server is the server's finding.
    cut = Answers({1: replace(answer, connectivity={**reached, "c:1": False})}, answers.nodes)
    assert f"server {SERVER} does not reach c:1" in problems(find(summarize(view, cut, nodes)))


def _away(node: str) -> NodeStatus:
    return NodeStatus(Endpoint(node[0], 2), error="TLS failed", turned_away=True)


def test_a_process_that_lets_us_not_in_is_no_evidence_that_it_is_away() -> None:
    view = _view(metadata(), registered=True)
    reached = dict.fromkeys(NODES, True)
    away = dict.fromkeys(NODES, NodeAnswer(turned_away=True))
    nodes = {node: _away(node) for node in NODES}
    for healthy, problem in ((True, ""), (False, f"its server {SERVER} reports that it is not healthy")):
        answers = Answers({1: ServerAnswer(frozenset({0}), reached, {0: healthy})}, away)
        found = summarize(view, answers, nodes)
        (partition,) = found.partitions
        assert (partition.healthy, partition.unknown) == (healthy, False)
        assert problem in partition.problem
        assert not [line for line in problems(find(found)) if "replicas, 2 needed" in line]
        report = VerifyReport(tuple(check(P, view, answers)))
        assert not report.passed
        assert report.summary == []
    answers = Answers({1: ServerAnswer(problem="TLS failed", turned_away=True)}, away)
    (partition,) = summarize(view, answers, nodes).partitions
    assert partition.unknown
    assert partition.waits_for == ""
    assert partition.problem == f"its server {SERVER} is there, and no connection to it can be made"


def test_a_shortage_of_those_who_are_away_is_one_whoever_lets_us_not_in() -> None:
    view = _view(metadata(), registered=True)
    nodes = {"a:1": _away("a"), **{n: NodeStatus(Endpoint(n[0], 2), error="no answer") for n in NODES[1:]}}
    given = {"a:1": NodeAnswer(turned_away=True), "b:1": NodeAnswer(), "c:1": NodeAnswer()}
    answers = Answers({1: ServerAnswer(problem="TLS failed", turned_away=True)}, given)
    (partition,) = summarize(view, answers, nodes).partitions
    assert not partition.unknown
    assert partition.problem.startswith("1 of 3 replicas, 2 needed: b:1 (unreachable), c:1 (unreachable)")
    (line,) = VerifyReport(tuple(check(P, view, answers))).summary
    assert "1 of 3 replicas, 2 needed" in line
    one_silent = replace(
        answers, nodes={**given, "c:1": NodeAnswer({0: True}, {0: ReplicaAnswer(5, True, True)})}
    )
    (quorum,) = [one for one in check(P, view, one_silent) if one.check is Check.QUORUM]
    assert not quorum.known
    assert quorum.reason.startswith("it is not known: 1 of 3 replicas, 2 needed: a:1 (no connection to it")


def test_the_standing_of_a_healthy_partition_follows_how_its_node_is_silent() -> None:
    summary = Summary()
    view = _view(metadata(), registered=True)
    answers = Answers({1: ServerAnswer(frozenset({0}), dict.fromkeys(NODES, True), {0: True})}, {})
    away = {node: _away(node) for node in NODES}
    silent = {node: replace(one, turned_away=False) for node, one in away.items()}
    for nodes, standing in ((silent, Standing.UNREACHABLE), (away, Standing.UNKNOWN)):
        (partition,) = summary.make(view, answers, nodes).partitions
        assert {r.standing for r in partition.replicas} == {standing}


def test_safety_a8_a_node_that_knows_more_than_zookeeper_is_named() -> None:
    """Only where the partition is not well: a session may have begun after ZooKeeper was read."""
    well = page(metadata(), {"a": held(7)})
    assert [r.standing for r in well.partitions[0].replicas] == [Standing.CURRENT] * 3
    assert problems(find(well)) == []
    bad = page(metadata(), {"a": held(7), "b": held(6)}, healthy=False)
    assert [r.node for r in bad.partitions[0].ahead] == ["a:1", "b:1"]
    assert (
        "ZooKeeper is older than its replicas: a:1: it has completed session 7, later than the 5"
        in problems(find(bad))[0]
    )
    assert page(metadata(), {}, healthy=False).partitions[0].ahead == []


def test_safety_a8_a_copy_of_before_the_first_session_is_named_with_the_way_out() -> None:
    view = replace(_view(None, registered=False), never_started=frozenset({P}))
    nodes = {
        "a:1": NodeStatus(Endpoint("a", 2), (held(5),)),
        "b:1": NodeStatus(Endpoint("b", 2), (held(-1, -1),)),
    }
    found = find(summarize(view, Answers({}, {}), nodes))
    (older,) = [one for one in found if one.rule is ZOOKEEPER_OLDER]
    assert "a:1: it has completed session 5, and ZooKeeper knows of none" in older.finding
    assert "`waltz zk accept-restored -p 0 --dry-run`" in older.next_step
    unknown = find(summarize(_view(None, registered=False), Answers({}, {}), nodes))
    assert not [one for one in unknown if one.rule is ZOOKEEPER_OLDER], "metadata that were lost"


def test_a_server_that_still_asks_a_node_that_is_away_is_not_silent() -> None:
    """That takes it longer than a question may take here; the questions before were answered."""
    waits = ServerAnswer(frozenset({0}), None, {0: True})
    found = summarize(_view(metadata(), registered=True), Answers({1: waits}, {}), {})
    assert found.servers[0].unreached == ()
    assert not any("registered but does not answer" in line for line in problems(find(found)))
    silent = summarize(_view(metadata(), registered=True), Answers({1: ServerAnswer()}, {}), {})
    assert silent.servers[0].unreached is None
