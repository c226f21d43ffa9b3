"""The console in the plan: it waits for the tree, for nothing else, and nothing waits for it."""

from __future__ import annotations

import base64
from dataclasses import replace

from operator_tests.plan.cluster import facts, kube, rendered
from operator_tests.resources.clusters import VARIANTS, Spec, cluster, merged
from waltz_operator.api.metadata import BASIS_HASH, TEMPLATE, TEMPLATE_HASH
from waltz_operator.model.actions import ApplyObject, DeleteObject
from waltz_operator.model.desired import Memory, desired_of
from waltz_operator.model.facts import Facts
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, ObjectView, PodView, Snapshot, Unknown
from waltz_operator.model.versions import governed
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.console import console_status
from waltz_operator.plan.console_token import token_step
from waltz_operator.plan.outstanding import outstanding
from waltz_operator.plan.status.running import running_images
from waltz_operator.plan.status.stalled import stuck_pod
from waltz_operator.plan.teardown import tear_down

KEY = ObjectKey("Deployment", "c-console")
CONSOLE = Rendered(KEY, {}, "console-2", "t2")


def with_console(view: KubeView, digest: str = "console-2", **pod: object) -> KubeView:
    """The same with a console that was applied, and its pod."""
    one = replace(PodView("p", "console", "t1", True, image="waltz-tools:0.0.9"), **pod)  # type: ignore[arg-type]
    objects = {**view.objects, KEY: ObjectView("d", "", digest)}
    return replace(view, objects=objects, pods={**view.pods, "c-console-x": one})


def wanting(found: Facts, wanted: bool = True) -> Facts:
    return replace(found, desired=replace(found.desired, console=wanted))


def written(found: Facts) -> list[ObjectKey]:
    decision = decide(found, (*rendered(), CONSOLE))
    return [one.key for one in decision.actions if isinstance(one, ApplyObject)]


def test_it_is_applied_when_there_is_a_tree_whatever_else_is_under_way() -> None:
    well = wanting(facts(kube()))
    assert written(well) == [KEY]
    assert written(replace(well, memory=Memory(None))) == []
    assert KEY in written(wanting(facts(kube(servers="old", calm=False))))
    assert KEY in written(replace(well, restarts_wait="the window opens on Saturday"))
    assert KEY in written(wanting(facts(kube(template="old"))))
    assert KEY in written(wanting(facts(kube({0: None}))))
    assert KEY not in written(wanting(facts(with_console(kube()))))
    assert KEY in written(wanting(facts(with_console(kube(), "console-1"))))


def test_the_window_of_restarts_is_not_its_own() -> None:
    """Servers keep their template until it opens; the console does not."""
    kept = {TEMPLATE: '{"old": true}', TEMPLATE_HASH: "t1", BASIS_HASH: "b1"}
    live = ObjectView("d", "", "console-1", {"metadata": {"annotations": kept}})
    body = {"metadata": {"name": KEY.name, "annotations": {}}, "spec": {"template": {"new": True}}}
    view = replace(kube(), objects={**kube().objects, KEY: live})
    found = replace(wanting(facts(view)), restarts_wait="the window opens on Saturday")
    decision = decide(found, (*rendered(), Rendered(KEY, body, "console-2", "t2")))
    (applied,) = [one for one in decision.actions if isinstance(one, ApplyObject)]
    assert (applied.key, applied.body["spec"]["template"]) == (KEY, {"new": True})


def test_nothing_waits_for_it() -> None:
    """One that cannot run, or runs another release: every decision is as without it."""
    for broken in (
        {"ready": False, "stuck": "CrashLoopBackOff"},
        {"ready": False, "image": "waltz-tools:9.9.9"},
        {"deleting": True},
    ):
        for view in (kube(), kube(template="old"), kube(servers="old")):
            without = decide(wanting(facts(view)), rendered())
            found = wanting(facts(with_console(view, **broken)))
            decision = decide(found, (*rendered(), CONSOLE))
            assert decision.actions == without.actions
            assert decision.blocked == without.blocked
            assert decision.restarts == without.restarts
            assert stuck_pod(found) is None
            assert running_images(found) == running_images(facts(view))
    assert "console" not in governed(cluster({"version": "0.1.0", "images": None}))


def test_its_own_change_is_no_restart_of_a_server() -> None:
    view = with_console(kube(), "console-1")
    assert outstanding(facts(view), view, (CONSOLE, *rendered())) == []


def test_it_is_deleted_when_it_is_switched_off() -> None:
    view = with_console(kube())
    off = decide(wanting(facts(view), False), rendered())
    assert [one.key for one in off.actions if isinstance(one, DeleteObject)] == [KEY]
    assert not decide(wanting(facts(kube()), False), rendered()).actions
    going = replace(view, objects={**view.objects, KEY: ObjectView("d", "", "console-2", deleting=True)})
    assert not decide(wanting(facts(going), False), rendered()).actions
    others = replace(view, objects={**view.objects, KEY: ObjectView("d", "", None)})
    assert not decide(wanting(facts(others), False), rendered()).actions, "somebody else's"


def test_a_deletion_of_the_cluster_does_not_wait_for_it() -> None:
    found = facts(with_console(replace(kube(), deployment=None, statefulsets={}, pods={}), ready=False))
    decision = Decision(found.memory)
    tear_down(replace(found, desired=replace(found.desired, deleting=True)), decision)
    assert decision.teardown_complete


# ---- the token


def test_the_token_is_made_once() -> None:
    on = cluster(VARIANTS["console"])
    (step,) = token_step(on, False)
    assert step.key == ObjectKey("Secret", "ledger-console-token")
    token = base64.b64decode(step.body["data"]["token"]).decode()
    assert len(token) >= 32
    assert token_step(on, False) != (step,), "another one each time"
    assert [one["kind"] for one in step.body["metadata"]["ownerReferences"]] == ["WaltzCluster"]
    assert token_step(on, True) == ()
    assert token_step(cluster(), False) == ()
    assert token_step(cluster(merged(VARIANTS["console"], {"paused": True})), False) == ()


# ---- the status


def status_of(changes: Spec, view: KubeView | Unknown) -> object:
    made = cluster(changes)
    found = replace(facts(), kube=view, desired=desired_of(made))
    return console_status(Snapshot(made, view, Unknown(""), {}, {}, 0.0), found)


def test_the_status_says_whether_it_runs_and_where_its_token_is() -> None:
    assert status_of({}, kube()) is None
    found = status_of(VARIANTS["console"], with_console(kube()))
    assert found == status_of(VARIANTS["console"], with_console(kube(), beside="proxy: CrashLoopBackOff"))
    assert vars(found) == {
        "ready": True,
        "address": "https://ledger-console.demo.svc:8090/",
        "token_secret": "ledger-console-token",
        "message": "",
    }
    stuck = status_of(VARIANTS["console"], with_console(kube(), ready=False, stuck="ImagePullBackOff"))
    assert vars(stuck)["message"] == "c-console-x: ImagePullBackOff"
    assert vars(stuck)["ready"] is False
    assert vars(status_of(VARIANTS["console"], Unknown("")))["ready"] is False
