"""What the planner does without an object that the API server does not take, and with a volume that cannot
grow."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan.cluster import facts, kube, pod, rendered, told
from waltz_operator.model.actions import ApplyObject, DeletePod
from waltz_operator.model.reasons import Reason
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, ObjectView, PVCView, Rejection
from waltz_operator.plan.builder import LATER, Decision
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of

SET = ObjectKey("StatefulSet", "s2")
CLAIM = ObjectKey("PersistentVolumeClaim", "data-s2-0")
CONFIG = ObjectKey("ConfigMap", "c-storage")
THERE, MISSING = Rejection("apply it: forbidden", True), Rejection("apply it: not ours", False)


def applied(decision: Decision) -> list[ObjectKey]:
    return [one.key for one in decision.actions if isinstance(one, ApplyObject)]


def mounting(objects: tuple[Rendered, ...], key: ObjectKey) -> tuple[Rendered, ...]:
    """The StatefulSets mount it."""
    volume = {
        "ConfigMap": {"configMap": {"name": key.name}},
        "PersistentVolumeClaim": {"persistentVolumeClaim": {"claimName": key.name}},
    }[key.kind]
    body = {"spec": {"template": {"spec": {"volumes": [volume]}}}}
    return tuple(replace(one, body=body) if one.key.kind == "StatefulSet" else one for one in objects)


def test_a_refused_object_is_not_asked_for_again_and_the_others_are() -> None:
    decision = decide(facts(kube()), rendered(template="t2"), {SET: THERE})
    assert applied(decision) == [ObjectKey("StatefulSet", "s0"), ObjectKey("StatefulSet", "s1")]
    assert decision.rejected == (Reason.REFUSED_CHANGE, "apply it: forbidden")


def test_a_node_whose_stateful_set_is_refused_is_not_restarted_nor_waited_for() -> None:
    """The first two have the new template already; the pod of the third would only come back as it was. The
    servers are changed."""
    view = kube(template="t2")
    old = {**view.objects, SET: ObjectView("s", "", "set-t1")}
    sets = {**view.statefulsets, "s2": replace(view.statefulsets["s2"], template_hash="t1")}
    pods = {**view.pods, "s2-0": pod("t1")}
    looked = facts(replace(view, objects=old, statefulsets=sets, pods=pods))
    wanted = rendered(template="t2", servers="t2")
    decision = decide(looked, wanted, {SET: THERE})
    assert not any(isinstance(one, DeletePod) for one in decision.actions)
    assert decision.blocked == []
    assert applied(decision) == [ObjectKey("Deployment", "c-server")]


def test_at_rest_a_refusal_is_no_reason_to_look_again_soon() -> None:
    view = kube()
    found = facts(replace(view, objects={**view.objects, SET: ObjectView("s", "", "set-t0")}))
    decision = decide(found, rendered(), {SET: THERE})
    assert decision.actions == []
    assert decision.requeue_seconds == LATER
    assert told(found, decision) == ("False", "RefusedChange", "apply it: forbidden")


def test_what_mounts_a_refused_object_waits_for_it() -> None:
    found, wanted = facts(kube()), rendered(template="t2")
    assert applied(decide(found, mounting(wanted, CLAIM), {CLAIM: MISSING})) == []
    assert applied(decide(found, mounting(wanted, CONFIG), {CONFIG: THERE})) == []


def test_a_volume_that_is_there_and_cannot_change_holds_up_nothing() -> None:
    found, wanted = facts(kube()), mounting(rendered(template="t2"), CLAIM)
    assert [key.name for key in applied(decide(found, wanted, {CLAIM: THERE}))] == ["s0", "s1", "s2"]


# ---- volumes


def growing(expandable: bool | None) -> tuple[KubeView, tuple[Rendered, ...]]:
    """Volume 2 is to have 2 GiB and has one."""
    view = kube()
    small = PVCView("v", 1 << 30, 1 << 30, "slow", "2", "0", expandable)
    body = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    wanted = tuple(
        Rendered(one.key, body, "larger") if one.key == CLAIM else one for one in rendered(servers="t2")
    )
    return replace(view, pvcs={**view.pvcs, CLAIM.name: small}), wanted


def test_a_volume_whose_class_cannot_grow_is_not_tried_and_the_rest_is_done() -> None:
    view, wanted = growing(False)
    found = facts(view)
    decision = decide(found, wanted)
    assert applied(decision) == [ObjectKey("Deployment", "c-server")]
    by_type = {one.type: one for one in conditions(found, decision, health_of(found), (), (), 1)}
    valid = by_type["Valid"]
    assert (valid.status, valid.reason) == ("False", "RefusedChange")
    assert "storage class slow does not allow it" in valid.message


def test_the_size_of_a_volume_that_is_refused_for_good_can_be_lowered_again() -> None:
    """The rule of the definition that lets it asks for this reason in Valid."""
    found, wanted = facts(kube()), rendered()
    for one, valid in ((THERE, "False"), (MISSING, "False"), (THERE._replace(for_good=False), "True")):
        decision = decide(found, wanted, {CLAIM: one})
        by_type = {it.type: it for it in conditions(found, decision, health_of(found), (), (), 1)}
        assert by_type["Valid"].status == valid
        if valid == "False":
            assert by_type["Valid"].reason == "RefusedChange"
            assert one.text in by_type["Valid"].message
    other = decide(found, wanted, {SET: THERE})
    assert other.unable == [], "it is no part of the specification that could be lowered"


def test_a_volume_whose_class_is_not_known_is_tried() -> None:
    for expandable in (None, True):
        view, wanted = growing(expandable)
        assert CLAIM in applied(decide(facts(view), wanted))


def test_while_a_migration_cannot_be_read_objects_are_repaired_and_nothing_else_is_done() -> None:
    """It may be in progress: its copy job is not tidied away, no pod is restarted, no copy changed."""
    view = kube(template="t2")
    restart = facts(replace(view, pods={**view.pods, "s2-0": pod("t1")}))
    wanted = rendered(template="t2")
    assert any(isinstance(one, DeletePod) for one in decide(restart, wanted).actions)
    decision = decide(replace(restart, unreadable=("WaltzMigration odd cannot be read: x",)), wanted)
    assert decision.actions == []
    assert decision.blocked[0].reason is Reason.INVALID_SPEC
    known = facts(kube())
    repaired = decide(replace(known, unreadable=("x",)), wanted)
    assert applied(repaired) == applied(decide(known, wanted)) != []
