"""The plan for one WaltzCluster: one look in, ordered actions out. Pure and stateless: every pass starts from
nothing.

Order of a pass: is the specification valid and the tree ours → Kubernetes objects → the tree and its key →
nodes registered, partitions seeded → partitions assigned on the nodes → at most ONE of: restart of a server
of the managed ZooKeeper (needs no tree), restart of a storage node, step of the replica change under way,
farewell of an empty node, begin of a replica change, move of partitions between servers by load → status. A
step that is not proven to be safe is left out with its reason; the rest continues. So it does without an
object that the API server rejected in this pass: it is planned again, without that and what depends on it.
While a migration cannot be read, which may be in progress, or the operator has no certificate that the
processes take, objects are still repaired and nothing is done to copies and pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from waltz_operator.model.actions import Action, Blocked, Plan, SetStatus
from waltz_operator.model.facts import Facts, facts_of, render
from waltz_operator.model.reasons import Reason
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, Rejection, Snapshot, TreeView
from waltz_operator.model.texts import first_texts
from waltz_operator.plan import lost_journal
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.journal_space import as_it_is, check_claims, check_space
from waltz_operator.plan.kept_data import still_owned
from waltz_operator.plan.nodes import equalise, release_nodes, seed
from waltz_operator.plan.objects import apply_objects, stop_servers
from waltz_operator.plan.outstanding import outstanding
from waltz_operator.plan.rejected_objects import held_back, holds_up, refused_volumes, reported
from waltz_operator.plan.replica_changes import begin_change, continue_change, tidy_jobs
from waltz_operator.plan.restarts import Restart, due, restart_next, storage_busy
from waltz_operator.plan.server_moves import balance_servers
from waltz_operator.plan.status.cluster import cluster_status
from waltz_operator.plan.status.events import cluster_events
from waltz_operator.plan.teardown import tear_down
from waltz_operator.plan.zookeeper_login import check_login, mark_zookeeper
from waltz_operator.plan.zookeeper_restarts import restart_zookeeper
from waltz_operator.plan.zookeeper_tree import check_tree, make_tree, register_nodes

Renderer = Callable[[Snapshot, Facts], Sequence[Rendered]]


def plan(snapshot: Snapshot, *, renderer: Renderer = render) -> Plan:
    """What is to be done for the cluster now, in this order, and what its status is to be."""
    facts = facts_of(snapshot)
    still = facts.problems or facts.desired.deleting or not isinstance(facts.kube, KubeView)
    decision = decide(facts, () if still else tuple(renderer(snapshot, facts)), snapshot.rejected)
    if snapshot.failed is not None:
        reason = Reason.REFUSED_CHANGE if snapshot.failed.for_good else Reason.WRITE_FAILED
        decision.failed = (reason, snapshot.failed.text)
    status = cluster_status(snapshot, facts, decision)
    actions: list[Action] = list(decision.actions)
    meta = snapshot.cluster.metadata
    if status != snapshot.cluster.status and not decision.teardown_complete:
        about = ObjectKey("WaltzCluster", meta.name)
        actions.append(SetStatus(about, meta.uid, meta.resource_version, status))
        actions.extend(cluster_events(about, snapshot.cluster.status, status))
    return Plan(
        tuple(actions),
        status,
        tuple(decision.blocked),
        decision.requeue_seconds,
        decision.teardown_complete,
    )


def decide(
    facts: Facts, objects: Sequence[Rendered], rejected: Mapping[ObjectKey, Rejection] | None = None
) -> Decision:
    """The decision, before it is reported. `rejected`: objects that the API server does not take."""
    rejected = rejected or {}
    decision = Decision(facts.memory, rejected=reported(rejected))
    if facts.desired.deleting:
        tear_down(facts, decision)
        return decision
    if isinstance(facts.kube, KubeView):
        decision.actions.extend(still_owned(facts, facts.kube))
    if facts.problems:
        decision.invalid = (Reason.INVALID_SPEC, first_texts(facts.problems))
        return decision
    if isinstance(facts.kube, KubeView):
        decision.restarts = outstanding(facts, facts.kube, objects)
    check_login(facts, decision)
    if decision.invalid is None:
        check_tree(facts, decision)
    if decision.invalid is not None or facts.desired.paused:
        if isinstance(facts.kube, KubeView):
            stop_servers(facts, facts.kube, objects, decision)
        return decision
    kube, tree = facts.kube, facts.tree
    mark_zookeeper(facts, decision)
    make_tree(facts, decision)
    if not isinstance(kube, KubeView):
        decision.wait(Reason.KUBERNETES_UNKNOWN, kube.reason)
        return decision
    held = held_back(objects, rejected)
    decision.unable += (*facts.flaws, *refused_volumes(rejected))
    waiting = check_claims(facts, kube, objects, decision) | check_space(facts, kube, objects, decision)
    shown = as_it_is(kube, objects, waiting)
    restarts = [one for one in due(facts, kube, shown) if not holds_up(held, one.node)]
    held |= waiting
    apply_objects(facts, kube, objects, storage_busy(facts, kube, restarts), decision, held)
    restart_zookeeper(facts, kube, objects, held, decision)
    if not isinstance(tree, TreeView) or facts.memory.cluster_key is None:
        return decision
    register_nodes(facts, tree, decision)
    unreachable = next(
        (one for one in facts.certificate_problems if one.holds and one.role == "operator"), None
    )
    if unreachable is not None:
        decision.block(Blocked("changes of the copies", unreachable.reason, unreachable.text))
        return decision
    seed(facts, tree, decision)
    if facts.unreadable:
        decision.block(Blocked("changes of the copies", Reason.INVALID_SPEC, first_texts(facts.unreadable)))
        return decision
    equalise(facts, tree, decision)
    lost_journal.report(facts, decision)
    tidy_jobs(facts, kube, decision)
    _one_step(facts, tree, kube, shown, restarts, decision)
    return decision


def _one_step(
    facts: Facts,
    tree: TreeView,
    kube: KubeView,
    objects: Sequence[Rendered],
    restarts: Sequence[Restart],
    decision: Decision,
) -> None:
    """At most one step that changes assignments, takes a node down or deletes something."""
    if not decision.risky:
        restart_next(facts, kube, objects, restarts, decision)
    if not decision.risky:
        continue_change(facts, decision)
    if not decision.risky:
        release_nodes(facts, tree, kube, decision)
    if not decision.risky:
        begin_change(facts, decision)
    balance_servers(facts, decision)
