"""The console: what is deleted when it is switched off, and its status. Pure.

Nothing else of the planner asks for the console: it holds up nothing, and nothing holds it up but the tree
that it shows.
"""

from __future__ import annotations

from waltz_operator.api import topology
from waltz_operator.api.cluster_status import ConsoleStatus
from waltz_operator.model.actions import DeleteObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import KubeView, Snapshot
from waltz_operator.plan.builder import Decision
from waltz_operator.resources.common import CONSOLE
from waltz_operator.resources.console import scheme


def switch_off(facts: Facts, kube: KubeView, decision: Decision) -> None:
    """Delete the Deployment of a console that is no longer wanted; its other objects go as all that are no
    longer rendered. The Secret with the token stays: who has it opens the console when it is wanted again."""
    live = kube.objects.get(facts.desired.console_key)
    if live is None or facts.desired.console or live.deleting or not live.applied_hash:
        return
    decision.actions.append(DeleteObject(facts.desired.console_key, live.uid, "the console is switched off"))
    decision.soon()


def console_status(snapshot: Snapshot, facts: Facts) -> ConsoleStatus | None:
    """For people: whether it runs, where it is, where its token is."""
    cluster = snapshot.cluster
    if not cluster.spec.console.enabled:
        return None
    kube = facts.kube if isinstance(facts.kube, KubeView) else None
    name = topology.console_name(cluster)
    host = f"{name}.{cluster.metadata.namespace}.svc"
    stuck = [
        f"{pod}: {view.problem}"
        for pod, view in sorted((kube.pods if kube is not None else {}).items())
        if view.component == CONSOLE and view.problem and not view.deleting
    ]
    ready = kube is not None and any(
        view.component == CONSOLE and view.ready and not view.deleting for view in kube.pods.values()
    )
    return ConsoleStatus(
        ready=ready,
        address=f"{scheme(cluster)}://{host}:{topology.CONSOLE_PORT}/",
        token_secret=topology.console_secret(cluster),
        message=stuck[0] if stuck and not ready else "",
    )
