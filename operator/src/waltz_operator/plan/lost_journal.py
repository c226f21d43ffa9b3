"""Storage nodes whose data and journal do not belong together: one of the volumes was lost, or is damaged.

Such a node does not start (safety rule C7), and nobody starts it on less than it acknowledged. It is a lost
disk: reported, and a WaltzMigration with `replace` is a person's word that its copies are made again. Then
both volumes are given up, where every partition is proven to do without them; the node starts empty, which
is a lost disk as any other. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from waltz_operator.model.actions import Action, Blocked, DeletePod, GiveUpVolume
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import KubeView, Unknown
from waltz_operator.model.task import Task, TaskKind
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.safety_gates import Denied, may_give_up


class Emptying(NamedTuple):
    """What comes before a lost copy can be made again: steps, or what they wait for. `why`: for the
    status."""

    why: tuple[Reason, str]
    actions: tuple[Action, ...] = ()
    blocked: tuple[Blocked, ...] = ()


def report(facts: Facts, decision: Decision) -> None:
    """Nodes that wait for a person's word."""
    for node in facts.desired.nodes:
        name = node.connect_string
        if facts.lost_journal(name) is None or any(one.refills(name) for one in facts.tasks):
            continue
        text = (
            f"{node.pod} does not start: its data and its journal do not belong together, so one of them was lost; "
            "a WaltzMigration with replace gives up both and refills it"
        )
        decision.block(Blocked(f"start of {node.pod}", Reason.DISK_LOST, text))


def empty_first(facts: Facts, task: Task) -> Emptying | None:
    """Of a migration that fills a node again: give up its volumes, or wait until it answers. None: it
    answers, so what it has lost is known."""
    view = facts.node(task.source)
    if task.kind is not TaskKind.REPLACE or not facts.staying(task.source) or not isinstance(view, Unknown):
        return None
    identity = facts.lost_journal(task.source)
    if identity is None or not isinstance(facts.kube, KubeView):
        text = f"{task.source} does not answer, so what it has lost is not known: {view.reason}"
        waits = Blocked(f"migration {task.name}", Reason.NODE_SILENT, text)
        return Emptying((Reason.NODE_SILENT, text), blocked=(waits,))
    answer = may_give_up(facts, identity)
    if isinstance(answer, Denied):
        return Emptying((Reason(answer.blocked.reason), answer.blocked.text), blocked=(answer.blocked,))
    kube = facts.kube
    volumes = [(name, kube.pvcs[name]) for name in identity.claims if name in kube.pvcs]
    pod = kube.pods[identity.pod]
    actions: list[Action] = [
        GiveUpVolume(name, claim.uid, answer.proof) for name, claim in volumes if not claim.deleting
    ]
    if not pod.deleting:
        actions.append(DeletePod(identity.pod, pod.uid, "it starts anew on empty volumes", answer.proof))
    return Emptying((Reason.MIGRATING, f"{identity.pod} starts anew on empty volumes"), tuple(actions))


def empty_again(facts: Facts, task: Task) -> Emptying:
    """The node lost its journal while it was filled: what is under way would wait for it without end, and
    continues as soon as it answers with empty volumes."""
    lost = facts.lost_journal(task.source) is not None and task.refills(task.source)
    found = empty_first(facts, task) if lost else None
    return found or Emptying((Reason.MIGRATING, ""))
