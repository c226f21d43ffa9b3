"""Planners with a planted bug, and what the exploration must say of each.

Each is a change of the shipped text, made while the module is loaded (`tests.sim.mutants.loader`), so every
one runs in a process of its own: `python -m operator_tests.plan.exploration.mutants NAME` in operator/tests
prints what was found. Where a second guard would hide the bug it is removed as well.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from operator_tests.plan.exploration.mutants_of_moves import MUTANTS_OF_MOVES
from operator_tests.plan.exploration.planted import OPERATOR as _OPERATOR
from operator_tests.plan.exploration.planted import Planted

if TYPE_CHECKING:
    from tests.sim.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[5]
_RULES = "libs/cluster/src/waltz_cluster/replica_rules.py"
LIMIT = 20_000
"""States after which a bug counts as not found."""
SAMPLE_EVERY = 20


MUTANTS = {
    "quorum_of_staying_is_one_short": Planted(
        "A6: the staying members are a quorum of both sets",
        "exchange a group",
        (
            (
                _RULES,
                "    if len(live) >= needed or (allow_pause",
                "    if len(live) >= needed - 1 or (allow_pause",
            ),
        ),
    ),
    "own_word_of_nodes_is_not_asked": Planted(
        "A6: by the nodes' own fresh answers",
        "exchange a group",
        (
            (
                f"{_OPERATOR}/model/facts.py",
                "        return why_not_current(record, node, self._answer(partition, node))\n",
                '        return ""\n',
            ),
        ),
    ),
    "removed_while_the_metadata_counts_on_it": Planted(
        "a copy is deleted only when it is proven to be gone from the metadata",
        "drain a node",
        (
            (
                _RULES,
                "    if node in metadata.replicas:\n        return Refusal(\n",
                "    if not node:\n        return Refusal(\n",
            ),
            (
                _RULES,
                '    if incomplete:\n        return Refusal(Obstacle.CHANGE_INCOMPLETE, f"',
                '    if not node:\n        return Refusal(Obstacle.CHANGE_INCOMPLETE, f"',
            ),
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "    if isinstance(record, PartitionMetadata) and source in record.replicas:\n",
                "    if not source:\n",
            ),
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "    if isinstance(record, PartitionMetadata) and change_incomplete(record, facts.holders(move.partition)):\n",
                "    if not target:\n",
            ),
        ),
        "still counted on",
    ),
    "two_nodes_down": Planted(
        "one storage node at a time",
        "roll two nodes a group",
        ((f"{_OPERATOR}/plan/safety_gates.py", "        if other:\n", "        if not node:\n"),),
        "second storage node",
    ),
    "something_beside_that_crashes_is_taken_for_a_node_that_cannot_run": Planted(
        "a node goes down only when the others have a quorum",
        "roll beside something that crashes",
        (
            (
                f"{_OPERATOR}/plan/safety_gates.py",
                "    if pod is not None and pod.stuck and not pod.ready and silent:\n",
                "    if pod is not None and pod.problem and not pod.ready:\n",
            ),
        ),
        "lost its quorum",
    ),
    "restart_without_a_quorum_of_others": Planted(
        "a node goes down only when the others have a quorum",
        "roll a template",
        (
            (
                f"{_OPERATOR}/plan/safety_gates.py",
                "    if len(near) >= quorum_of(len(holders)):\n",
                "    if len(near) >= quorum_of(len(holders)) - 1:\n",
            ),
        ),
        "lost its quorum",
    ),
    "lost_tree_is_seeded_again": Planted(
        "A7: a recorded key and a missing tree are a fault",
        "install and delete",
        (
            (
                f"{_OPERATOR}/plan/zookeeper_tree.py",
                "        decision.invalid = _missing(facts)\n",
                "        decision.invalid = None\n",
            ),
        ),
        "seeded again",
    ),
    "copy_goes_online_unverified": Planted(
        "only a verified copy is assigned",
        "drain a node",
        (
            (
                f"{_OPERATOR}/plan/move_steps.py",
                'if job is not None and job.state == "succeeded" and verified(job, replica):',
                "if job is not None:",
            ),
        ),
        "never verified",
    ),
    "small_copy_is_not_made": Planted(
        "only a verified copy is assigned",
        "drain two partitions at a time",
        (
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "(*step.actions, copy, _online(facts, move, target), assign)",
                "(*step.actions, _online(facts, move, target), assign)",
            ),
        ),
        "never verified",
    ),
    "small_copy_that_is_found_online_counts_as_verified": Planted(
        "only a verified copy is assigned",
        "exchange a group",
        (
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "(*step.actions, copy, _online(facts, move, target), assign)",
                "(*step.actions, _online(facts, move, target), copy, assign)",
            ),
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "    if replica.available:\n        offline = ",
                "    if replica.available:\n        return None\n        offline = ",
            ),
        ),
        "never verified",
    ),
    "verified_though_the_disk_was_lost_since": Planted(
        "what was verified must still be there",
        "lose a disk while changing",
        (
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "    return job.verified_through is not None and replica.low_water_mark >= job.verified_through\n",
                "    return job.verified_through is not None\n",
            ),
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "        if job is not None:  # its answer",
                "        if job is not None and job.deleting:  # its answer",
            ),
        ),
        "never verified",
    ),
    "empty_disk_becomes_a_member": Planted(
        "A1: a lost disk is never assigned again on its own",
        "replace a lost disk",
        (
            (
                f"{_OPERATOR}/plan/safety_gates.py",
                "        if took_part >= 0:\n",
                "        if took_part >= 99:\n",
            ),
        ),
        "empty disk",
    ),
    "silence_is_taken_for_empty": Planted(
        "absence of evidence is no proof",
        "take a node out of its group",
        (
            (
                f"{_OPERATOR}/plan/safety_gates.py",
                '        return denied(what, Reason.NODE_SILENT, f"{node} is not proven to be empty: {view.reason}")',
                '        return Allowed("nothing was heard")',
            ),
        ),
        "not empty",
    ),
    "registered_nodes_lose_their_objects": Planted(
        "a node's objects go after it was unregistered",
        "take a node out of its group",
        (
            (
                f"{_OPERATOR}/model/snapshot.py",
                "    return any(node in known for known in (tree.groups, tree.assignments, tree.admin_ports))\n",
                "    return not tree.groups\n",
            ),
        ),
        "the node is registered",
    ),
    "finished_change_is_not_forgotten": Planted(
        "convergence",
        "grow and shrink",
        (
            (
                f"{_OPERATOR}/plan/replica_changes.py",
                "        decision.recorded(None)\n",
                "        decision.recorded(move)\n",
            ),
        ),
        "operation is left",
    ),
    "always_something_to_apply": Planted(
        "no write when nothing changed",
        "roll a template",
        (
            (
                f"{_OPERATOR}/plan/diff.py",
                "    if live.applied_hash != wanted.digest:\n",
                "    if live.applied_hash:\n",
            ),
        ),
        "something to write",
    ),
    "tree_deleted_under_running_nodes": Planted(
        "teardown: servers, storage nodes, tree, volumes",
        "install and delete",
        (
            (
                f"{_OPERATOR}/plan/teardown.py",
                "    if _servers_remain(facts, kube, decision) or _storage_remains(facts, kube, decision):\n",
                "    if _servers_remain(facts, kube, decision):\n",
            ),
        ),
        "under running nodes",
    ),
    "refill_waits_for_what_waits_for_it": Planted(
        "a lost copy is refilled before the change that it holds up goes on",
        "lose a disk while draining",
        (
            (
                f"{_OPERATOR}/plan/precedence.py",
                "    if task.kind is not TaskKind.REPLACE or task.over:\n",
                "    if task.kind is not TaskKind.REPLACE or task.name:\n",
            ),
        ),
        "is left",
    ),
    "more_are_begun_as_if_nothing_were_under_way": Planted(
        "a change that is under way stays recorded until it has ended",
        "drain two partitions at a time",
        (
            (
                f"{_OPERATOR}/plan/migration.py",
                "    kept = [one for one in decision.task.records if one.state is not MoveState.PENDING]\n",
                "    kept = [one for one in decision.task.records if one.state in FINISHED_STATES]\n",
            ),
        ),
    ),
    "retry_forgets_what_was_left": Planted(
        "a migration that failed and is begun again finishes what it has left",
        "give a drain up",
        (
            (
                f"{_OPERATOR}/plan/migration.py",
                "        replace(one, state=MoveState.STARTED) if one.state is MoveState.FAILED else one\n",
                "        replace(one, state=MoveState.CANCELLED) if one.state is MoveState.FAILED else one\n",
            ),
        ),
        "is left on",
    ),
    "given_up_and_never_over": Planted(
        "what is given up is over",
        "give a drain up",
        (
            (
                f"{_OPERATOR}/plan/migration.py",
                "    decision.task = replace(task, phase=MigrationPhase.FAILED, failure=why, records=closed(records))\n",
                "    decision.task = replace(task, failure=why, records=records)\n",
            ),
        ),
    ),
    "refill_of_a_healthy_replica": Planted(
        "replace touches only what is lost",
        "replace a lost disk",
        (
            (
                f"{_OPERATOR}/plan/move_steps.py",
                "    return node in facts.holders(move.partition) and facts.data_lost(move.partition, node)\n",
                "    return node in facts.holders(move.partition)\n",
            ),
        ),
    ),
    "a_drain_that_moved_nothing_is_done": Planted(
        "a drain that has nowhere to go is not completed",
        "drain a node that is alone",
        (
            (
                f"{_OPERATOR}/plan/placement.py",
                "            nodes.take(target)\n        yield Move(",
                "            nodes.take(target)\n            yield Move(",
            ),
        ),
        "completed, and n0 has partitions",
    ),
    "restarts_outside_the_window": Planted(
        "a pod that runs is restarted in the window only",
        "restarts wait for a window",
        (
            (
                f"{_OPERATOR}/plan/restarts.py",
                "        if facts.restarts_wait and not one.pod.stuck:\n",
                "        if facts.restarts_wait and one.pod.stuck:\n",
            ),
        ),
        "outside the window",
    ),
    "servers_roll_outside_the_window": Planted(
        "servers keep their template until the window opens",
        "restarts wait for a window",
        (
            (
                f"{_OPERATOR}/plan/objects.py",
                "live is not None and _servers_wait(facts, kube):\n",
                "live is not None and one.key.name in held:\n",
            ),
        ),
        "servers outside the window",
    ),
    "what_cannot_run_waits_for_the_window": Planted(
        "a pod that cannot run waits for no window",
        "restarts wait for a window",
        (
            (
                f"{_OPERATOR}/plan/restarts.py",
                "        if facts.restarts_wait and not one.pod.stuck:\n",
                "        if facts.restarts_wait:\n",
            ),
        ),
        "not as wanted: pods of",
    ),
    "storage_goes_back_before_the_servers": Planted(
        "on the way back who asks goes before who answers",
        "back to an earlier release",
        (
            (
                f"{_OPERATOR}/plan/restarts.py",
                "        if facts.version.down and not one.pod.stuck and not servers_done(facts, kube, objects):\n",
                "        if facts.version.down and one.pod.stuck and not servers_done(facts, kube, objects):\n",
            ),
        ),
        "went back before the servers",
    ),
    "servers_and_storage_wait_for_each_other": Planted(
        "on the way back servers do not wait for the storage nodes that wait for them",
        "back to an earlier release",
        (
            (
                f"{_OPERATOR}/plan/objects.py",
                "or not storage_busy or facts.version.down:\n",
                "or not storage_busy:\n",
            ),
        ),
        "not as wanted",
    ),
    "servers_go_up_before_the_storage_nodes": Planted(
        "who answers is upgraded before who asks",
        "back to an earlier release",
        (
            (
                f"{_OPERATOR}/plan/objects.py",
                "or not storage_busy or facts.version.down:\n",
                "or storage_busy or not facts.version.down:\n",
            ),
        ),
        "before the storage nodes",
    ),
    "what_was_refused_is_asked_again": Planted(
        "an object that the API server refuses is not asked for in every pass",
        "a StatefulSet is refused",
        (
            (
                f"{_OPERATOR}/plan/objects.py",
                "        if not why or one.key in held or _cannot_grow(kube, one, decision):\n",
                "        if not why or _cannot_grow(kube, one, decision):\n",
            ),
        ),
        "something to write",
    ),
    "a_refused_node_holds_up_the_servers": Planted(
        "what does not depend on a refused object is done",
        "a StatefulSet is refused",
        (
            (
                f"{_OPERATOR}/plan/cluster.py",
                "    restarts = [one for one in due(facts, kube, shown) if not holds_up(held, one.node)]\n",
                "    restarts = due(facts, kube, shown)\n",
            ),
        ),
        "not as wanted",
    ),
    **MUTANTS_OF_MOVES,
}


def plant(name: str) -> None:
    """Everything imported from now on has the bug."""
    sys.path[:0] = [str(ROOT), str(ROOT / "operator/tests")]
    from tests.sim.mutants.loader import plant as plant_edits

    plant_edits(mutant(name))


def mutant(name: str) -> Mutant:
    """The bug in the form that the loader takes; needs the repository's root on the path."""
    from tests.sim.mutants.mutant import Edit, Mutant

    planted = MUTANTS[name]
    edits = tuple(Edit(file, old, new) for file, old, new in planted.edits)
    return Mutant(name, planted.rule, edits, (), "")


def look_for(name: str) -> str:
    """What the exploration finds; empty when nothing."""
    from operator_tests.plan.exploration.converge import check_reached, undisturbed
    from operator_tests.plan.exploration.explore import explore
    from operator_tests.plan.exploration.scenario import scenarios

    scenario = next(one for one in scenarios() if one.name == MUTANTS[name].scenario)
    try:
        starts = undisturbed(scenario)
        for seed in range(3):
            found = explore(scenario, starts, LIMIT // 4, seed=seed, sample_every=SAMPLE_EVERY)
            for index, world in enumerate(found.sample):
                check_reached(world, scenario.universe, lazy=index % 2 == 1)
    except AssertionError as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    plant(sys.argv[1])
    print(look_for(sys.argv[1])[:4000])
