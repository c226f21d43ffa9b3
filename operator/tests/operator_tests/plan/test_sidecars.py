"""A container beside ours that crashes makes the pod unready, and nothing else: what is in the storage node
is counted on all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from operator_tests.plan.cluster import answer, facts, identity, kube, progressing, rendered, replica
from waltz_operator.model.actions import DeletePod
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import JobView, PodView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.safety_gates import Allowed, Denied, may_restart
from waltz_operator.run import read_kubernetes

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 1}}
SILENT = Unknown("no route")


def waiting(reason: str = "CrashLoopBackOff") -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def pod(
    storage: Mapping[str, Any] | None = RUNNING,
    beside: Mapping[str, Any] | None = None,
    first: Mapping[str, Any] | None = None,
    *,
    ready: bool = False,
    deleting: bool = False,
    phase: str = "Running",
    template: str = "t0",
) -> PodView:
    """A storage pod as the API server tells of it: state of our container, of one beside it, and of one that
    runs before."""
    states = [{"name": "storage", "state": storage}] if storage is not None else []
    states += [{"name": "proxy", "state": beside}] if beside is not None else []
    metadata: dict[str, Any] = {
        "uid": "uid",
        "labels": {"app.kubernetes.io/component": "storage"},
        "annotations": {"waltz.dev/template-hash": template},
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": states,
        "initContainerStatuses": [{"name": "first", "state": first}] if first is not None else [],
    }
    return read_kubernetes.pod({"metadata": metadata, "status": status})


CRASHING = pod(RUNNING, waiting())
"""Ours runs, the one beside it does not; still of the old template."""


@pytest.mark.parametrize(
    ("found", "stuck", "beside"),
    [
        (CRASHING, "", "proxy: CrashLoopBackOff"),
        (pod(RUNNING, waiting("ImagePullBackOff")), "", "proxy: ImagePullBackOff"),
        (pod(RUNNING, RUNNING, waiting()), "", "first: CrashLoopBackOff"),
        (pod(waiting(), RUNNING), "CrashLoopBackOff", ""),
        (pod(waiting("ErrImagePull"), waiting()), "ErrImagePull", "proxy: CrashLoopBackOff"),
        (pod(waiting("PodInitializing"), None, waiting("ErrImagePull")), "ErrImagePull", ""),
        (pod(None, None, waiting("ErrImagePull")), "ErrImagePull", ""),
        (pod(ENDED, waiting()), "", "proxy: CrashLoopBackOff"),
        (pod(ENDED, ENDED, phase="Failed"), "Failed", ""),
        (pod(RUNNING, RUNNING), "", ""),
    ],
)
def test_only_what_keeps_our_container_from_running_makes_a_pod_stuck(
    found: PodView, stuck: str, beside: str
) -> None:
    assert (found.stuck, found.beside) == (stuck, beside)


def look(pods: Mapping[int, PodView | None], *silent: int, closed: tuple[int, ...] = ()) -> Facts:
    """The template was changed for all three nodes; what is beside the storage nodes crashes in each that is
    not given."""
    every: dict[int, PodView | None] = dict.fromkeys((0, 1, 2), CRASHING)
    return facts(kube({**every, **pods}), dict.fromkeys(silent, SILENT), closed=closed)


def taken_down(found: Facts) -> list[str]:
    decision: Decision = decide(found, rendered())
    return [one.name for one in decision.actions if isinstance(one, DeletePod)]


def test_one_of_three_is_taken_down() -> None:
    """The new template may be what mends the crash: it must come."""
    assert taken_down(look({})) == ["s0-0"]


@pytest.mark.parametrize(
    ("first", "silent", "closed"),
    [
        (replace(CRASHING, deleting=True), (), ()),
        (replace(CRASHING, deleting=True), (0,), ()),
        (None, (0,), ()),
        (pod(waiting("PodInitializing"), template="t1"), (0,), ()),
        (pod(RUNNING, waiting(), template="t1"), (), (0,)),
    ],
    ids=["ending, still answers", "ending", "gone", "starting", "back, not yet current"],
)
def test_no_second_one_is_taken_down_while_the_first_is_not_back(
    first: PodView | None, silent: tuple[int, ...], closed: tuple[int, ...]
) -> None:
    assert taken_down(look({0: first}, *silent, closed=closed)) == []


def test_one_that_is_silent_does_not_go_on_the_word_of_one_that_is_ending() -> None:
    assert taken_down(look({0: replace(CRASHING, deleting=True)}, 1)) == []
    assert taken_down(look({0: pod(RUNNING, waiting(), template="t1")}, 1)) == ["s1-0"]


def test_the_second_one_goes_when_the_first_is_back() -> None:
    assert taken_down(look({0: replace(CRASHING, template_hash="t1")})) == ["s1-0"]


def test_a_pod_that_is_said_to_be_stuck_and_answers_is_asked_about_like_any_other() -> None:
    """Its container came back after Kubernetes was read."""
    back = pod(waiting())
    assert taken_down(look({0: back, 1: None}, 1)) == []
    assert taken_down(look({0: back, 1: None}, 0, 1)) == ["s0-0"]


def test_a_node_that_a_copy_job_works_with_stays() -> None:
    found = look({})
    job = JobView("j", "m", 0, identity(0).connect_string, "n9:1", "active")
    view = replace(kube({0: CRASHING}), jobs={"copy": job})
    answer_ = may_restart(replace(found, kube=view), identity(0))
    assert isinstance(answer_, Denied)
    assert answer_.blocked.reason == "CopyInProgress"


def test_a_copy_that_is_about_to_come_back_is_not_given_up_for_its_unready_pod() -> None:
    """Two of three are out of the session; the one that answers and is in service is what brings writes
    back."""
    out = look({1: None}, 1, closed=(0, 1))
    assert isinstance(may_restart(out, identity(0)), Denied)
    broken = replace(out, nodes={**out.nodes, "n0:1": answer(replica(problem="a sync failed"))})
    assert isinstance(may_restart(broken, identity(0)), Allowed)


def test_two_nodes_that_are_partly_out_of_service_do_not_wait_for_each_other() -> None:
    """Both are unready by their own word: a new template may be what mends them."""
    half = replace(answer(replica()), partitions={0: replica(), 1: replica(problem="a sync failed")})
    found = facts(kube(dict.fromkeys((0, 1), pod())), dict.fromkeys((0, 1), half))
    assert isinstance(may_restart(found, identity(0)), Allowed)


def test_a_person_is_told() -> None:
    found = look({})
    new = rendered(template="t0")
    view = replace(kube(dict.fromkeys((0, 1, 2), CRASHING), template="t0"))
    told = progressing(replace(found, kube=view), new)
    assert told == ("False", "PodStuck", "s0-0: proxy: CrashLoopBackOff")
