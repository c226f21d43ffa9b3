"""Partitions that move between servers because of the load: when one may, which ones, and what came of it.
Pure.

A decision is recorded in the status before it is written in ZooKeeper, so it counts against its limits
whatever crashes in between; what came of it is seen in the assignment. One that is given up counts too: it
may have been carried out, and undone by a restart of servers before anybody saw it. Loads are averages of the
servers' own over the window, and nothing is decided before every server has had its partitions for that long:
what a restart forgets is measured anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from waltz_admin.load import ServerLoad, costs
from waltz_cluster.errors import ClusterError
from waltz_cluster.moving import ServerMove, moved
from waltz_cluster.replica_rules import why_stale
from waltz_operator.api.cluster_status import ServerMoveState
from waltz_operator.model.actions import MovePartitions
from waltz_operator.model.desired import BalanceLimits, ServerMoveRecord
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, ServerView, TreeView
from waltz_operator.plan.builder import AT_ONCE, Decision
from waltz_operator.plan.load_balance import choose
from waltz_operator.plan.safety_gates import Allowed, Answer, denied
from waltz_operator.plan.status.partition_health import health_of

MAX_RECORDS = 32
"""Moves that the status has; while all of them are younger than the cool-down, nothing moves."""

DUE_SECONDS = 60.0
"""After this a decision that was not seen to be carried out is given up: it was made from loads that are old
now."""


def balance_servers(facts: Facts, decision: Decision) -> None:
    """The step that is due: what came of the last decision, its write, or the next decision."""
    if not isinstance(facts.tree, TreeView) or facts.tree.assignment is None:
        return  # servers come or go: what came of the last decision is not known
    records = tuple(_settled(facts.tree, decision.memory.server_moves))
    due = [one for one in records if one.due]
    limits = facts.desired.balance
    if due:
        action = MovePartitions(tuple(one.move for one in due), _cversion(facts))
        fresh = all(facts.now - one.at <= DUE_SECONDS for one in due)
        if fresh and _idle(decision) and isinstance(may_move(facts, action), Allowed):
            decision.take(action)
        else:
            records = tuple(_given_up(one) if one.due else one for one in records)
    elif limits is not None and _idle(decision) and records == decision.memory.server_moves:
        records = (*records, *_decided(facts, limits, records))[-MAX_RECORDS:]
    if records != decision.memory.server_moves:
        decision.memory = replace(decision.memory, server_moves=records)
        decision.requeue_seconds = min(decision.requeue_seconds, AT_ONCE)


def _idle(decision: Decision) -> bool:
    """Whether this pass has found nothing else to do or to wait for."""
    return not (decision.risky or decision.actions or decision.blocked or decision.waiting)


def _settled(tree: TreeView, records: tuple[ServerMoveRecord, ...]) -> Iterator[ServerMoveRecord]:
    """With what came of those that were due."""
    for one in records:
        owner = tree.owners.get(one.move.partition)
        if not one.due or owner == one.move.source:
            yield one
        elif owner == one.move.target:
            yield one._replace(state=ServerMoveState.DONE)
        else:
            yield _given_up(one)


def _given_up(record: ServerMoveRecord) -> ServerMoveRecord:
    return record._replace(state=ServerMoveState.GIVEN_UP)


def _cversion(facts: Facts) -> int:
    found = facts.tree.assignment if isinstance(facts.tree, TreeView) else None
    return found.cversion if found is not None else -1


def may_move(facts: Facts, action: MovePartitions) -> Answer:
    """Whether these partitions may move now: nothing else changes, all is well, and they are where they
    were."""
    refusal = why_not(facts)
    if not refusal and _cversion(facts) != action.cversion:
        refusal = "servers came or left"
    tree = facts.tree
    for move in action.moves:
        if not refusal and isinstance(tree, TreeView) and tree.owners.get(move.partition) != move.source:
            refusal = f"partition {move.partition} is not with server {move.source}"
    if refusal:
        return denied(action.line, Reason.REFUSED_CHANGE, refusal)
    return Allowed("all partitions are served and caught up, nothing else changes")


def why_not(facts: Facts) -> str:
    """Why no partition moves now; empty when one may."""
    kube, tree = facts.kube, facts.tree
    if facts.desired.balance is None:
        return "it is not asked for"
    if not isinstance(kube, KubeView) or not isinstance(tree, TreeView) or tree.assignment is None:
        return "not everything is known"
    if facts.memory.operation is not None or any(job.state == "active" for job in kube.jobs.values()):
        return "a copy changes its node"
    working = next((one for one in facts.tasks if not one.over and one.approved and not one.dry_run), None)
    if working is not None:
        return f"migration {working.name} is in progress"
    if kube.deployment is not None and (kube.deployment.deleting or not kube.deployment.calm):
        return "the servers are rolled out"
    for name, pod in sorted(kube.pods.items()):
        if pod.component in ("storage", "server", "zookeeper") and (pod.deleting or not pod.ready):
            return f"{name} is not ready"
    unmeasured = (_not_measured(facts, tree, server) for server in sorted(tree.servers))
    why = next((one for one in unmeasured if one), "")
    if why:
        return why
    health = health_of(facts)
    return health.why_unhealthy or health.behind


def _not_measured(facts: Facts, tree: TreeView, server: int) -> str:
    limits, view = facts.desired.balance, facts.servers.get(server)
    if not isinstance(view, ServerView):
        return f"server {server} does not answer"
    late = why_stale(facts.now - view.observed_at)
    if late:
        return f"server {server}: {late}"
    if not isinstance(view.load, ServerLoad):
        return f"server {server}: {view.load.reason}"
    if view.partitions != {partition for partition, owner in tree.owners.items() if owner == server}:
        return f"server {server} has not taken up its partitions"
    if limits is not None and view.load.measured_seconds < limits.window_seconds:
        return f"server {server} has not had its partitions for {limits.window_minutes} minutes"
    return ""


def _decided(
    facts: Facts, limits: BalanceLimits, records: tuple[ServerMoveRecord, ...]
) -> tuple[ServerMoveRecord, ...]:
    """What is to move now, as records that are due."""
    tree = facts.tree
    if any(facts.now - one.at < limits.window_seconds for one in records):
        return ()
    if why_not(facts) or not isinstance(tree, TreeView) or tree.assignment is None:
        return ()
    warm = [one for one in records if facts.now - one.at < limits.cooldown_seconds]
    views = [view.load for view in facts.servers.values() if isinstance(view, ServerView)]
    loads = costs([one for one in views if isinstance(one, ServerLoad)], limits.window_minutes)
    preferred = {int(one) for member in tree.members.values() for one in member.preferred}
    chosen = choose(
        tree.owners,
        loads,
        tree.servers,
        preferred.union(one.move.partition for one in warm),
        minimum=limits.minimum_cores,
        improvement=limits.improvement,
        limit=min(limits.moves, MAX_RECORDS - len(warm)),
    )
    if not chosen:
        return ()
    try:
        moved(tree.assignment, tree.members, chosen)
    except ClusterError:
        return ()  # the servers' own policy would undo it
    return tuple(
        ServerMoveRecord(move, facts.now, message=_why(tree, loads, limits, move)) for move in chosen
    )


def _why(tree: TreeView, loads: dict[int, float], limits: BalanceLimits, move: ServerMove) -> str:
    def used(server: int) -> str:
        total = sum(loads.get(partition, 0.0) for partition, owner in tree.owners.items() if owner == server)
        return f"server {server} ({tree.servers[server]}) used {total:.0%} of a core"

    return (
        f"over {limits.window_minutes} min {used(move.source)}, {used(move.target)}, "
        f"the partition's part is {loads.get(move.partition, 0.0):.0%}"
    )
