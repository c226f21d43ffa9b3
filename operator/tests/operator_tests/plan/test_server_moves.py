"""Partitions move between servers by load: decided, recorded, written, seen; and when nothing moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from waltz_admin.load import PartitionRates, ServerLoad
from waltz_cluster.moving import ServerMove, moved
from waltz_cluster.serializers import PartitionAssignment, PartitionMetadata, ServerDescriptor
from waltz_operator.api.cluster_status import ServerMoveState as State
from waltz_operator.api.migration import MigrationPhase
from waltz_operator.api.parse import stored_cluster
from waltz_operator.model.actions import MovePartitions
from waltz_operator.model.desired import BalanceLimits, Memory, Move, MoveKind, ServerMoveRecord, desired_of
from waltz_operator.model.facts import Facts, memory_of, placement_of
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import (
    DeploymentView,
    Failure,
    JobView,
    KubeView,
    NodeView,
    PodView,
    ServerView,
    Snapshot,
    TreeView,
    Unknown,
)
from waltz_operator.model.task import Task, TaskKind
from waltz_operator.plan.builder import AT_ONCE, Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.preconditions import still_so
from waltz_operator.plan.safety_gates import Allowed, Denied
from waltz_operator.plan.server_moves import DUE_SECONDS, MAX_RECORDS
from waltz_operator.plan.status.cluster import cluster_status
from waltz_protocol.types import Endpoint, Generation, PartitionId

from . import cluster as c

LIMITS = BalanceLimits(window_minutes=5, minimum_cores=0.3, improvement=0.15, cooldown_seconds=3600, moves=2)
HOT = {0: 0.4, 1: 0.3, 2: 0.01, 3: 0.02}
OWNERS = {0: 1, 1: 1, 2: 2, 3: 2}
CVERSION = 5
SWAP = (ServerMove(1, 1, 2), ServerMove(2, 2, 1))


def load(owned: list[int], loads: Mapping[int, float], measured: float = 1000.0) -> ServerLoad:
    """A server whose partitions cause this."""
    total = sum(loads.get(one, 0.0) for one in owned)
    rates = {one: (PartitionRates(appends=100 * loads[one]),) * 3 for one in owned if loads.get(one)}
    return ServerLoad(measured, (total,) * 3, rates)


def facts(
    owners: Mapping[int, int] = OWNERS,
    loads: Mapping[int, float] = HOT,
    *,
    now: float = c.NOW,
    measured: float = 1000.0,
    records: tuple[ServerMoveRecord, ...] = (),
    limits: BalanceLimits | None = LIMITS,
) -> Facts:
    """Three nodes, four partitions, two servers; all is well."""
    base = c.facts()
    tree = base.tree
    assert isinstance(tree, TreeView)
    copies = {c.name(node): c.listed(node) for node in c.NODES}
    servers = sorted(set(owners.values()) | {1, 2})
    assignment = PartitionAssignment(
        CVERSION,
        4,
        {
            server: tuple((PartitionId(p), Generation(1)) for p, owner in owners.items() if owner == server)
            for server in servers
        },
    )
    tree = replace(
        tree,
        num_partitions=4,
        assignments={c.name(node): (0, 1, 2, 3) for node in c.NODES},
        partitions={p: PartitionMetadata(0, c.SESSION, copies) for p in range(4)},
        servers={server: f"h{server}:1" for server in servers},
        owners=dict(owners),
        members={one: ServerDescriptor(one, Endpoint(f"h{one}", 1), ()) for one in servers},
        assignment=assignment,
    )
    owned = {server: [p for p, owner in owners.items() if owner == server] for server in servers}
    return replace(
        base,
        desired=replace(base.desired, partitions=4, balance=limits),
        memory=Memory(c.KEY, server_moves=records),
        tree=tree,
        nodes={c.name(node): replace(c.answer(*[c.replica()] * 4), observed_at=now) for node in c.NODES},
        servers={
            server: ServerView(
                frozenset(had), dict.fromkeys(had, True), {}, now, None, load(had, loads, measured)
            )
            for server, had in owned.items()
        },
        now=now,
        placement=placement_of(tree),
    )


def decision_of(found: Facts) -> Decision:
    return decide(found, c.rendered())


def decided(found: Facts) -> tuple[ServerMoveRecord, ...]:
    return decision_of(found).memory.server_moves


DUE = tuple(ServerMoveRecord(move, c.NOW) for move in SWAP)
GIVEN_UP = tuple(one._replace(state=State.GIVEN_UP) for one in DUE)


def test_a_decision_is_recorded_then_written_then_seen() -> None:
    first = decision_of(facts())
    assert first.actions == []
    assert [(one.move, one.state) for one in first.memory.server_moves] == [
        (move, State.DUE) for move in SWAP
    ]
    assert first.memory.server_moves[0].message == (
        "over 5 min server 1 (h1:1) used 70% of a core, server 2 (h2:1) used 3% of a core, "
        "the partition's part is 30%"
    )
    assert first.requeue_seconds == AT_ONCE
    second = decision_of(facts(records=first.memory.server_moves, now=c.NOW + 1))
    assert second.actions == [MovePartitions(SWAP, CVERSION)]
    assert second.memory.server_moves == first.memory.server_moves
    third = decision_of(
        facts({**OWNERS, 1: 2, 2: 1}, records=first.memory.server_moves, now=c.NOW + 2, measured=1.0)
    )
    assert third.actions == []
    assert [one.state for one in third.memory.server_moves] == [State.DONE] * 2


def test_what_was_written_is_kept_by_the_servers_and_ends() -> None:
    found = facts()
    assert isinstance(found.tree, TreeView)
    assert found.tree.assignment is not None
    after = moved(found.tree.assignment, found.tree.members, SWAP)
    owners = {int(p): server for server in (1, 2) for p in after.partitions_of(server)}
    assert decided(facts(owners)) == ()


def test_a_crash_before_the_write_repeats_it_and_one_after_it_does_not() -> None:
    assert decision_of(facts(records=DUE)).actions == [MovePartitions(SWAP, CVERSION)]
    assert decision_of(facts({**OWNERS, 1: 2, 2: 1}, records=DUE, measured=1.0)).actions == []


def test_an_old_decision_is_given_up() -> None:
    late = decision_of(facts(records=DUE, now=c.NOW + DUE_SECONDS + 1))
    assert (late.actions, late.memory.server_moves) == ([], GIVEN_UP)


def test_what_was_undone_before_it_was_seen_counts_against_the_cooldown() -> None:
    """Written; then servers restarted and shared by number again. Nobody knows that it moved."""
    again = decision_of(facts(records=DUE, measured=1.0))
    assert (again.actions, again.memory.server_moves) == ([], GIVEN_UP)
    elsewhere = {0: 1, 1: 3, 2: 3, 3: 2}
    assert decided(facts(elsewhere, records=DUE, measured=1.0)) == GIVEN_UP
    soon = decided(facts(records=GIVEN_UP, now=c.NOW + 400))[len(GIVEN_UP) :]
    assert [one.move.partition for one in soon] == [0, 3], "the others"
    assert len(decided(facts(records=GIVEN_UP, now=c.NOW + 3601))) == 4


def test_while_servers_come_or_go_what_was_decided_stays_open() -> None:
    found = facts(records=DUE)
    assert isinstance(found.tree, TreeView)
    found = replace(found, tree=replace(found.tree, assignment=None, owners={}))
    assert (decision_of(found).actions, decided(found)) == ([], DUE)


def test_nothing_moves_again_within_the_window_nor_a_partition_within_the_cooldown() -> None:
    done = tuple(one._replace(state=State.DONE) for one in DUE)
    back = {0: 2, 1: 1, 2: 1, 3: 2}  # somebody else moved them: both would be moved again
    for passed, moves in ((299, 0), (301, 2), (3601, 2)):
        now = c.NOW + passed
        fresh = decided(facts(back, {1: 0.5, 2: 0.4}, records=done, now=now))[len(done) :]
        warm = {one.move.partition for one in fresh} & {1, 2}
        assert len(fresh) == (0 if passed < 3600 else moves)
        assert bool(warm) == (passed > 3600)


def test_the_record_is_bounded_and_never_forgets_what_is_warm() -> None:
    warm = tuple(ServerMoveRecord(ServerMove(9, 1, 2), c.NOW - 400, State.DONE) for _ in range(MAX_RECORDS))
    assert decided(facts(records=warm)) == warm
    cold = tuple(one._replace(at=c.NOW - 4000) for one in warm)
    assert len(decided(facts(records=cold))) == MAX_RECORDS
    assert decided(facts(records=cold))[-2:][0].move == SWAP[0]


def test_a_partition_that_somebody_prefers_stays() -> None:
    found = facts()
    assert isinstance(found.tree, TreeView)
    preferring = {
        **found.tree.members,
        1: ServerDescriptor(1, Endpoint("h1", 1), (PartitionId(0), PartitionId(1))),
    }
    assert decided(replace(found, tree=replace(found.tree, members=preferring))) == ()


def _tree(**changes: object) -> Callable[[Facts], Facts]:
    def change(found: Facts) -> Facts:
        assert isinstance(found.tree, TreeView)
        return replace(found, tree=replace(found.tree, **changes))  # type: ignore[arg-type]

    return change


def _server(**changes: object) -> Callable[[Facts], Facts]:
    def change(found: Facts) -> Facts:
        view = found.servers[2]
        assert isinstance(view, ServerView)
        return replace(found, servers={**found.servers, 2: replace(view, **changes)})  # type: ignore[arg-type]

    return change


def _kube(**changes: object) -> Callable[[Facts], Facts]:
    def change(found: Facts) -> Facts:
        assert isinstance(found.kube, KubeView)
        return replace(found, kube=replace(found.kube, **changes))  # type: ignore[arg-type]

    return change


def _pod(component: str, *, ready: bool, deleting: bool = False) -> Callable[[Facts], Facts]:
    def change(found: Facts) -> Facts:
        assert isinstance(found.kube, KubeView)
        pods = {**found.kube.pods, "p": PodView("u", component, "t1", ready, deleting)}
        return replace(found, kube=replace(found.kube, pods=pods))

    return change


def _task(**changes: object) -> Callable[[Facts], Facts]:
    task = Task("m", "m", TaskKind.DRAIN, "1", source=c.name(0), **changes)  # type: ignore[arg-type]
    return lambda found: replace(found, tasks=(task,))


def _node(view: NodeView | Unknown) -> Callable[[Facts], Facts]:
    return lambda found: replace(found, nodes={**found.nodes, c.name(1): view})


_ADD = Move(MoveKind.ADD, 0, None, c.name(0))
NOT_NOW: dict[str, Callable[[Facts], Facts]] = {
    "off": lambda found: replace(found, desired=replace(found.desired, balance=None)),
    "paused": lambda found: replace(found, desired=replace(found.desired, paused=True)),
    "a migration": _task(phase=MigrationPhase.RUNNING),
    "a migration that waits its turn": _task(),
    "a copy in progress": _kube(jobs={"j": JobView("u", "m", 0, "a", "b", "active")}),
    "a change of the copies": lambda found: replace(found, memory=replace(found.memory, operation=_ADD)),
    "servers are rolled out": _kube(deployment=DeploymentView("d", "t1", 2, 1, False)),
    "another template": _kube(deployment=DeploymentView("d", "t0", 2, 2, True), objects={}),
    "a storage pod restarts": _pod("storage", ready=True, deleting=True),
    "a server is not ready": _pod("server", ready=False),
    "ZooKeeper is not ready": _pod("zookeeper", ready=False),
    "Kubernetes is not known": lambda found: replace(found, kube=Unknown("no answer")),
    "a storage node is silent": _node(Unknown("no answer")),
    "a copy is behind": _node(c.answer(*[c.replica()] * 3, c.replica(session_id=c.SESSION - 1))),
    "a server is silent": lambda found: replace(found, servers={**found.servers, 2: Unknown("no answer")}),
    "an old answer": _server(observed_at=c.NOW - 60),
    "a server of 0.13.2": _server(load=Unknown("does not report this")),
    "a server that is not healthy": _server(healthy={2: True, 3: False}),
    "a server that lags the assignment": _server(partitions=frozenset({2})),
    "a window that is not over": _server(load=load([2, 3], HOT, 299.0)),
    "a partition without a server": _tree(owners={0: 1, 1: 1, 2: 2}),
}

OF_THE_SPECIFICATION = ("paused", "another template")
"""The proof before the write asks for the very specification that was planned for, not for what it says."""


@pytest.mark.parametrize("why", NOT_NOW)
def test_nothing_is_decided_nor_written(why: str) -> None:
    changed = NOT_NOW[why](facts())
    assert decided(changed) == ()
    due = NOT_NOW[why](facts(records=DUE))
    assert not [one for one in decision_of(due).actions if isinstance(one, MovePartitions)]
    if why not in OF_THE_SPECIFICATION:
        assert isinstance(still_so(due, MovePartitions(SWAP, CVERSION)), Denied)


@pytest.mark.parametrize(
    "harmless",
    [
        _task(phase=MigrationPhase.COMPLETED),
        _task(approved=False),
        _task(dry_run=True),
        _pod("migration", ready=False),
    ],
    ids=["a migration that is over", "one that waits for a person", "one that only plans", "its old pod"],
)
def test_what_does_nothing_holds_nothing_up(harmless: Callable[[Facts], Facts]) -> None:
    assert len(decided(harmless(facts()))) == 2
    assert isinstance(still_so(harmless(facts()), MovePartitions(SWAP, CVERSION)), Allowed)


def test_the_write_is_proven_by_where_the_partitions_are_and_who_is_there() -> None:
    assert isinstance(still_so(facts(), MovePartitions(SWAP, CVERSION)), Allowed)
    assert isinstance(still_so(facts(), MovePartitions(SWAP, CVERSION - 1)), Denied)
    assert isinstance(still_so(facts({**OWNERS, 1: 2, 2: 1}), MovePartitions(SWAP, CVERSION)), Denied)


def test_the_status_keeps_what_was_decided_also_when_the_pass_failed() -> None:
    """Read back it is what was written, to the second."""
    found = facts(records=(DUE[0]._replace(message="why"), GIVEN_UP[1]))
    decision = Decision(found.memory)
    cluster = stored_cluster(BODY)
    snapshot = Snapshot(cluster, found.kube, found.tree, found.nodes, found.servers, c.NOW)
    status = cluster_status(snapshot, found, decision)
    assert memory_of(status).server_moves == found.memory.server_moves
    failed = replace(
        snapshot, cluster=cluster._replace(status=status), failed=Failure("it failed", for_good=False)
    )
    forgetful = Decision(replace(found.memory, server_moves=()), failed=(Reason.WRITE_FAILED, "it failed"))
    assert memory_of(cluster_status(failed, found, forgetful)).server_moves == found.memory.server_moves


BODY = {
    "apiVersion": "waltz.dev/v1alpha1",
    "kind": "WaltzCluster",
    "metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1},
    "spec": {"partitions": 4, "zookeeper": {"managed": {}}, "servers": {"rebalance": {}}},
}


def test_an_empty_block_switches_it_on_with_the_defaults() -> None:
    assert desired_of(stored_cluster(BODY)).balance == BalanceLimits(5, 0.5, 0.15, 3600.0, 2)
    off = {**BODY, "spec": {"partitions": 4, "zookeeper": {"managed": {}}}}
    assert desired_of(stored_cluster(off)).balance is None
