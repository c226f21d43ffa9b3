"""The condition Progressing is False at rest, and when nothing goes on until a person acts; while anything
only takes time it is True."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import (
    KEY,
    answer,
    facts,
    identity,
    kube,
    name,
    pod,
    progressing,
    rendered,
    replica,
    told,
)
from waltz_operator.api.migration import MoveState
from waltz_operator.model.actions import Blocked
from waltz_operator.model.desired import Memory, Move, MoveKind
from waltz_operator.model.facts import Facts
from waltz_operator.model.reasons import Reason
from waltz_operator.model.snapshot import PodView, Unknown
from waltz_operator.model.task import Record, Task, TaskKind
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide

SILENT = Unknown("no route")
FOUR = (0, 1, 2, 3)
ADD = Move(MoveKind.ADD, 0, None, name(3), 1.0)
OUTDATED = {2: pod("t0")}


def one_more(new: PodView | None, move: Move | None = None) -> Facts:
    """A fourth node was asked for and does not answer yet."""
    found = facts(kube({3: new}, nodes=FOUR), {3: SILENT}, nodes=FOUR)
    return replace(found, memory=Memory(KEY, move))


def blocked(*reasons: Reason, held: bool = False) -> Decision:
    """A pass in which these steps on partition 0 were not taken."""
    decision = Decision(Memory(KEY))
    for reason in reasons:
        decision.block(Blocked("a step", reason, "a reason", 0))
    decision.held = held
    return decision


# ---------------------------------------------------------------------------------------------------- rest


def test_a_change_that_current_copies_cannot_prove_waits_for_a_person() -> None:
    """From two copies to one: both are needed for a quorum of two, and no waiting changes that."""
    found = facts(kube(nodes=(0, 1)), nodes=(0, 1), assigned=(0, 1))
    wanted = replace(found.desired, nodes=(identity(0),), by_connect={name(0): identity(0)})
    found = replace(found, desired=wanted, leaving=(identity(1),))
    status, reason, text = progressing(found, rendered((0,)))
    assert (status, reason) == ("False", "UnsafeChange")
    assert "2 are needed" in text


def test_at_rest_it_is_false() -> None:
    assert progressing(facts())[:2] == ("False", "AsWanted")


# ------------------------------------------------------------------------------------------------- time alone


@pytest.mark.parametrize(
    "new",
    [None, pod(ready=False), pod(ready=False, deleting=True), pod(ready=False, stuck="Unschedulable")],
    ids=["no pod", "starting", "ending", "no room yet"],
)
@pytest.mark.parametrize("move", [None, ADD], ids=["chosen next", "under way"])
def test_a_new_storage_node_that_starts_is_progress(new: PodView | None, move: Move | None) -> None:
    status, reason, text = progressing(one_more(new, move))
    assert (status, reason) == ("True", "NodeSilent"), text


def test_a_storage_node_that_starts_is_progress_when_nothing_is_blocked() -> None:
    found = facts(kube({2: pod(ready=False)}), {2: SILENT})
    assert progressing(found) == ("True", "Restarting", "s2-0 is not ready yet")


def test_servers_that_roll_out_are_progress() -> None:
    assert progressing(facts(kube(calm=False)))[:2] == ("True", "WaitingForServers")


def test_zookeeper_servers_that_start_are_progress() -> None:
    view = kube()
    ensemble = replace(view.statefulsets["s0"], node="", group="", replicas=3, ready_replicas=2)
    found = facts(replace(view, statefulsets={**view.statefulsets, "c-zookeeper": ensemble}))
    assert progressing(found)[:2] == ("True", "WaitingForZooKeeper")


@pytest.mark.parametrize(
    "reason",
    [
        Reason.CHANGE_INCOMPLETE,
        Reason.COPY_IN_PROGRESS,
        Reason.KUBERNETES_UNKNOWN,
        Reason.NODE_SILENT,
        Reason.NOT_EMPTY,
        Reason.NO_QUORUM_WITHOUT,
        Reason.NO_SOURCE,
        Reason.OTHER_NODE_DOWN,
        Reason.ROLL_NOT_SEEN,
        Reason.STILL_LISTED,
        Reason.STORAGE_FIRST,
        Reason.UNSAFE_CHANGE,
        Reason.WAITING_ITS_TURN,
        Reason.ZOOKEEPER_UNKNOWN,
    ],
)
def test_a_step_that_waits_for_time_is_progress(reason: Reason) -> None:
    found = facts(says={1: SILENT}) if reason is Reason.UNSAFE_CHANGE else facts()
    assert told(found, blocked(reason))[:2] == ("True", reason.value)


def test_a_restart_that_waits_for_a_copy_to_catch_up_is_progress() -> None:
    found = facts(kube(OUTDATED), {1: answer(replica(session_id=6))}, closed=(1,))
    assert progressing(found)[:2] == ("True", "NoQuorumWithoutIt")


def test_a_change_that_was_just_chosen_is_progress() -> None:
    """In that pass nothing is written but the record of it."""
    found = replace(facts(nodes=FOUR), memory=Memory(KEY))
    decision = decide(found, rendered(FOUR))
    assert decision.memory.operation is not None
    assert not decision.actions
    assert told(found, decision)[:2] == ("True", "ChangingReplicas")


def test_what_was_begun_and_says_nothing_is_progress() -> None:
    decision = Decision(Memory(KEY))
    decision.soon()
    assert told(facts(), decision)[:2] == ("True", "Applying")


# --------------------------------------------------------------------------------------------------- a person


@pytest.mark.parametrize(
    "reason",
    [Reason.DISK_FULL, Reason.DISK_LOST, Reason.METADATA_UNKNOWN, Reason.NO_SPARE_REPLICA, Reason.NO_TARGET],
)
def test_a_step_that_waits_for_a_person_stands_still(reason: Reason) -> None:
    assert told(facts(), blocked(reason)) == ("False", reason.value, "a step: a reason")


@pytest.mark.parametrize("reason", [Reason.NO_QUORUM_WITHOUT, Reason.UNSAFE_CHANGE, Reason.NO_SOURCE])
@pytest.mark.parametrize(
    "says",
    [answer(), answer(replica(session_id=3)), answer(replica(problem="x")), answer(replica(available=False))],
    ids=["empty disk", "set back", "out of service", "switched off"],
)
def test_copies_that_do_not_come_back_stand_still(reason: Reason, says: object) -> None:
    found = facts(says={1: says})  # type: ignore[dict-item]
    assert told(found, blocked(reason))[:2] == ("False", reason.value)


def test_one_copy_that_comes_back_is_progress_beside_a_lost_one() -> None:
    found = facts(says={1: answer(), 2: answer(replica(session_id=6))}, closed=(2,))
    assert told(found, blocked(Reason.DISK_LOST, Reason.NO_QUORUM_WITHOUT))[:2] == (
        "True",
        "NoQuorumWithoutIt",
    )


@pytest.mark.parametrize("reason", [Reason.NODE_SILENT, Reason.OTHER_NODE_DOWN, Reason.STORAGE_FIRST])
def test_a_step_that_waits_for_a_pod_that_cannot_run_stands_still(reason: Reason) -> None:
    found = facts(kube({1: pod(ready=False, stuck="ErrImagePull")}), {1: SILENT})
    assert told(found, blocked(reason))[:2] == ("False", reason.value)


def test_a_pod_that_cannot_run_stands_still_though_no_step_is_blocked() -> None:
    found = facts(kube({1: pod(ready=False, stuck="ErrImagePull")}), {1: SILENT})
    assert progressing(found) == ("False", "PodStuck", "s1-0: ErrImagePull")


def test_a_pod_that_starts_is_progress_beside_one_that_cannot_run() -> None:
    pods = {1: pod(ready=False, stuck="ErrImagePull"), 2: pod(ready=False)}
    found = facts(kube(pods), {1: SILENT, 2: SILENT})
    assert told(found, blocked(Reason.OTHER_NODE_DOWN))[:2] == ("True", "OtherNodeDown")


def test_a_node_that_says_itself_what_is_wrong_is_not_starting() -> None:
    found = facts(kube({1: pod(ready=False)}), {1: answer(replica(problem="the disk is full"))})
    assert told(found, blocked(Reason.DISK_FULL))[:2] == ("False", "DiskFull")


def test_paused_and_invalid_clusters_stand_still() -> None:
    found = one_more(pod(ready=False), ADD)
    paused = replace(found, desired=replace(found.desired, paused=True))
    assert progressing(paused)[:2] == ("False", "Paused")
    assert progressing(replace(found, problems=("spec.x: wrong",)))[:2] == ("False", "InvalidSpec")


# ------------------------------------------------------------------------------- while something else goes on


def test_a_fault_does_not_hide_a_change_or_a_migration_that_goes_on() -> None:
    lost = facts(says={1: answer()})
    changing = replace(lost, memory=Memory(KEY, Move(MoveKind.ADD, 0, None, name(2), 1.0)))
    decision = replace(blocked(Reason.DISK_LOST), memory=changing.memory)
    assert told(changing, decision)[:2] == ("True", "ChangingReplicas")
    assert told(changing, replace(decision, held=True))[:2] == ("False", "DiskLost")
    chosen = blocked(Reason.DISK_LOST)
    chosen.memory = Memory(KEY, ADD)
    assert told(lost, chosen)[:2] == ("True", "ChangingReplicas")
    refill = Move(MoveKind.REFILL, 0, name(1), name(1))
    record = Record(refill, MoveState.COPYING)
    task = Task("m", "u", TaskKind.REPLACE, "1", source=name(1), records=(record,))
    assert told(replace(lost, tasks=(task,)), blocked(Reason.DISK_LOST))[:2] == ("True", "Migrating")


def test_a_fault_does_not_hide_a_restart() -> None:
    found = facts(kube(OUTDATED), {0: SILENT})
    found = replace(found, kube=kube({0: pod("t0", ready=False, stuck="ErrImagePull")}))
    assert progressing(found)[:2] == ("True", "Restarting")
    assert identity(0).pod in progressing(found)[2]
