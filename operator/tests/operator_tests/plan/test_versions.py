"""Which release a cluster may be brought to, in which order its pods follow, and when."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from operator_tests.plan.cluster import facts, kube, pod, rendered
from operator_tests.resources.clusters import cluster, objects
from waltz_operator.api.cluster import Day, RestartWindow, WaltzCluster
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.model.actions import ApplyObject, DeletePod
from waltz_operator.model.facts import Facts
from waltz_operator.model.rendered import keeping_template
from waltz_operator.model.rendered import rendered as with_digest
from waltz_operator.model.snapshot import KubeView, PodView, Snapshot, Unknown
from waltz_operator.model.versions import (
    VersionPlan,
    parsed,
    refusal,
    version_of,
    version_of_pod,
    version_plan,
)
from waltz_operator.model.windows import closed, is_open
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.cluster import decide, plan
from waltz_operator.plan.objects import _servers_wait
from waltz_operator.plan.outstanding import outstanding
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.plan.status.running import running_images, running_versions
from waltz_operator.resources import RenderInputs
from waltz_operator.resources.images import ImageDefaults
from waltz_operator.run import read_kubernetes

OWN = parsed("0.9.0")


@pytest.mark.parametrize(
    ("running", "wanted", "way"),
    [
        ([], "0.4.2", ""),
        (["0.4.0"], "0.4.7", ""),
        (["0.4.7"], "0.4.0", ""),
        (["0.4.0"], "0.5.1", ""),
        (["0.5.1"], "0.4.0", ""),
        (["0.4.0", "0.5.0"], "0.5.0", ""),
        (["0.4.0", "0.5.0"], "0.4.0", ""),
        (["0.4.0"], "0.6.0", "go to 0.5, or 1.0 where that is the next release, first"),
        (["0.4.0", "0.5.0"], "0.6.0", "pods run 0.4.0"),
        (["0.6.0"], "0.4.9", "go to 0.5, first"),
        (["0.9.0"], "0.10.0", "upgrade the operator first"),
    ],
)
def test_one_release_at_a_time_and_the_refusal_names_the_way(
    running: list[str], wanted: str, way: str
) -> None:
    found = refusal(parsed(wanted), map(parsed, running), OWN)
    assert way in found
    assert bool(found) == bool(way)


def test_the_first_of_a_major_number_follows_the_last_of_the_one_before() -> None:
    own = parsed("1.3.0")
    assert refusal(parsed("1.0.0"), [parsed("0.9.4")], own) == ""
    assert refusal(parsed("0.9.4"), [parsed("1.0.0")], own) == ""
    assert "go to 0.10, or 1.0" in refusal(parsed("1.1.0"), [parsed("0.9.4")], own)
    assert "go to 1.0, first" in refusal(parsed("0.9.4"), [parsed("1.1.0")], own)
    assert "go to the last release of 1, first" in refusal(parsed("0.9.4"), [parsed("2.0.0")], own)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("waltz-server:0.4.1", "0.4.1"),
        ("r.example.com:5000/a/waltz-server:0.4.1@sha256:00", "0.4.1"),
        ("r.example.com:5000/a/waltz-server", None),
        ("waltz-server:latest", None),
        ("waltz-server@sha256:00", None),
    ],
)
def test_the_version_of_an_image_is_its_tag(image: str, version: str | None) -> None:
    found = version_of(image)
    assert (str(found) if found else None) == version


def running(**versions: str) -> KubeView:
    pods = {
        f"{role}-0": replace(pod(), component=role, image=f"waltz-{role}:{one}")
        for role, one in versions.items()
    }
    return KubeView(pods=pods)


def wanting(version: str, *, accepted: str | None = None, **images: str) -> WaltzCluster:
    gone: dict[str, str | None] = {"server": None, "storage": None, "zookeeper": None}
    made = cluster({"version": version, "images": gone | images})
    return made._replace(status=made.status.model_copy(update={"version": accepted}))


def test_a_refused_version_leaves_the_accepted_one() -> None:
    view = running(server="0.4.0", storage="0.4.0")
    plan = version_plan(wanting("0.6.0", accepted="0.4.0"), view, OWN)
    assert plan.target == "0.4.0"
    assert "go to 0.5" in plan.refused
    assert version_plan(wanting("0.6.0"), view, OWN).target is None


def test_no_step_begins_while_the_pods_cannot_be_read() -> None:
    """It was accepted in the one pass that did not see the pods of the release before the last one, and an
    accepted version stays."""
    unread = Unknown("the objects of the cluster cannot be read: HTTP 500")
    for wanted in ("0.6.0", "0.4.0"):
        assert version_plan(wanting(wanted, accepted="0.5.0"), unread, OWN).target == "0.5.0"
    assert version_plan(wanting("0.5.0", accepted="0.5.0"), unread, OWN) == VersionPlan("0.5.0")
    assert version_plan(wanting("0.5.0"), unread, OWN).target is None


def test_what_cannot_be_read_is_not_recorded_as_accepted() -> None:
    made = wanting("0.1.0", accepted=None)
    unread = Unknown("the objects of the cluster cannot be read: HTTP 500")
    status = plan(Snapshot(made, unread, Unknown("x"), {}, {}, 1000.0)).status
    assert isinstance(status, WaltzClusterStatus)
    assert status.version is None


def test_an_upgrade_that_has_begun_is_finished_before_the_next() -> None:
    view = running(server="0.4.0", storage="0.5.0")
    assert version_plan(wanting("0.5.0", accepted="0.5.0"), view, OWN) == VersionPlan("0.5.0")
    plan = version_plan(wanting("0.6.0", accepted="0.5.0"), view, OWN)
    assert (plan.target, bool(plan.refused)) == ("0.5.0", True)
    assert version_plan(wanting("0.4.0", accepted="0.5.0"), view, OWN) == VersionPlan("0.4.0", "", down=True)


PINNED = "mirror.local/waltz@sha256:00"


def as_a_pod(obj: Mapping[str, Any], role: str) -> PodView:
    """The pod of a template, whose image an admission webhook has pinned."""
    template = copy.deepcopy(obj["spec"]["template"])
    for one in template["spec"]["containers"]:
        one["image"] = PINNED
    made = read_kubernetes.pod({**template, "status": {}})
    assert (made.component, made.image) == (role, PINNED)
    return made


def test_the_version_of_a_pod_is_known_where_a_webhook_pins_its_image() -> None:
    """The way back from 0.5 begins with the servers; each pod is asked which release it runs."""
    made = objects(cluster({"version": "0.5.0", "images": IMAGES}))
    server = as_a_pod(made["Deployment", "ledger-server"], "server")
    storage = as_a_pod(made["StatefulSet", "ledger-storage-1-0"], "storage")
    view = KubeView(pods={"server-0": server, "storage-0": storage})
    back = wanting("0.4.0", accepted="0.4.0")
    assert version_plan(back, view, OWN) == VersionPlan("0.4.0", "", down=True)
    assert "go to 0.4, first" in version_plan(wanting("0.3.0", accepted="0.5.0"), view, OWN).refused
    images = running_images(facts(view))
    assert [(one.image, one.version) for one in images] == [(PINNED, "0.5.0")] * 2
    assert running_versions(images) == ["0.5.0"]
    changed = replace(server, image="waltz-server:0.4.1")
    assert str(version_of_pod(changed)) == "0.4.1", "what runs is what counts"
    assert version_of_pod(replace(server, written_image="")) is None


def test_an_accepted_version_stays_when_the_operator_goes_back() -> None:
    view = running(server="0.5.0", storage="0.5.0")
    assert version_plan(wanting("0.5.0", accepted="0.5.0"), view, parsed("0.4.0")) == VersionPlan("0.5.0")


def test_an_explicit_image_is_taken_at_its_word() -> None:
    view = running(server="0.2.0", storage="0.4.0")
    assert version_plan(wanting("0.5.0", server="mine:0.2.0"), view, OWN) == VersionPlan("0.5.0")


IMAGES = {"server": None, "storage": None, "zookeeper": None}


def image_names(made: WaltzCluster, **inputs: object) -> dict[str, str]:
    found = objects(made, RenderInputs(version=made.spec.version, **inputs))  # type: ignore[arg-type]
    return {
        obj["metadata"]["name"]: obj["spec"]["template"]["spec"]["containers"][0]["image"]
        for (kind, _), obj in found.items()
        if kind in ("StatefulSet", "Deployment")
    }


def test_images_follow_from_the_version() -> None:
    made = cluster({"version": "0.4.0", "images": IMAGES})
    assert set(image_names(made).values()) == {
        "waltz-server:0.4.0",
        "waltz-storage:0.4.0",
        "waltz-zookeeper:0.4.0",
    }
    digest = "sha256:" + "0" * 64
    setup = ImageDefaults("r.example.com/w", {"waltz-server:0.4.0": digest}, ("pull",))
    found = image_names(made, images=setup)
    assert found["ledger-server"] == f"r.example.com/w/waltz-server:0.4.0@{digest}"
    assert found["ledger-storage-1-0"] == "r.example.com/w/waltz-storage:0.4.0"
    own = cluster({"version": "0.4.0", "images": {**IMAGES, "registry": "mine", "storage": "x:1"}})
    found = image_names(own, images=setup)
    assert (found["ledger-zookeeper"], found["ledger-storage-1-0"]) == ("mine/waltz-zookeeper:0.4.0", "x:1")


def test_another_setup_of_the_operator_restarts_nothing() -> None:
    made = cluster({"version": "0.4.0", "images": IMAGES})
    before = objects(made, RenderInputs(version="0.4.0"))
    live = dict(before)
    setup = ImageDefaults("r.example.com/w", {}, ("pull",))
    after = objects(made, RenderInputs(version="0.4.0", images=setup, live=live))
    assert after == before
    upgraded = objects(made, RenderInputs(version="0.5.0", images=setup, live=live))
    spec = upgraded["Deployment", "ledger-server"]["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "r.example.com/w/waltz-server:0.5.0"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


# ---- order

OLD: Mapping[int, PodView | None] = {2: pod("t0")}


def deleted(decision: Decision) -> list[str]:
    return [one.name for one in decision.actions if isinstance(one, DeletePod)]


def rolls_servers(decision: Decision) -> bool:
    return any(isinstance(one, ApplyObject) and one.key.kind == "Deployment" for one in decision.actions)


def downwards(view: KubeView) -> Facts:
    return replace(facts(view), version=VersionPlan("0.4.0", "", down=True))


def test_on_the_way_back_servers_come_first() -> None:
    decision = decide(downwards(kube(OLD)), rendered(servers="t2"))
    assert rolls_servers(decision)
    assert deleted(decision) == []
    assert [one.reason for one in decision.blocked] == ["ServersFirst"]
    rolling = decide(downwards(kube(OLD, servers="t2", calm=False)), rendered(servers="t2"))
    assert deleted(rolling) == []
    done = decide(downwards(kube(OLD, servers="t2")), rendered(servers="t2"))
    assert deleted(done) == ["s2-0"]


def test_on_the_way_up_storage_nodes_come_first() -> None:
    decision = decide(facts(kube(OLD)), rendered(servers="t2"))
    assert not rolls_servers(decision)
    assert deleted(decision) == ["s2-0"]


def with_server(view: KubeView) -> KubeView:
    return replace(view, pods={**view.pods, "c-server-x": replace(pod("t1"), component="server")})


def test_what_is_outstanding_is_in_the_order_in_which_it_is_done() -> None:
    view = with_server(kube({0: pod("t0"), 2: pod("t0")}))
    up = outstanding(facts(view), view, rendered(servers="t2"))
    assert [one.pod for one in up] == ["s0-0", "s2-0", "c-server-x"]
    assert [one.waits for one in up] == ["", "s0-0 comes first", "s2-0 comes first"]
    down = outstanding(downwards(view), view, rendered(servers="t2"))
    assert [one.pod for one in down] == ["c-server-x", "s0-0", "s2-0"]
    assert outstanding(facts(), kube(), rendered()) == []


# ---- the window

SATURDAY = datetime(2026, 11, 28, tzinfo=UTC).timestamp()
HOUR = 3600.0


def window(start: str = "02:00", minutes: int = 120, *days: Day) -> RestartWindow:
    return RestartWindow(start=start, duration_minutes=minutes, days=days)


@pytest.mark.parametrize(
    ("hours", "given", "opened"),
    [
        (2.0, window("02:00", 120, Day.SAT), True),
        (3.99, window("02:00", 120, Day.SAT), True),
        (4.0, window("02:00", 120, Day.SAT), False),
        (1.99, window("02:00", 120, Day.SAT), False),
        (26.0, window("02:00", 120, Day.SAT), False),
        (25.0, window("23:00", 180, Day.SAT), True),
        (1.0, window("23:00", 180, Day.SAT), False),
        (1.0, window("23:00", 180), True),
        (26.0, window(), True),
    ],
)
def test_a_window_is_open_on_its_days_and_past_midnight(
    hours: float, given: RestartWindow, opened: bool
) -> None:
    now = SATURDAY + hours * HOUR
    assert is_open(given, now) is opened
    assert (closed(given, now) == "") is opened


def test_a_closed_window_says_when_it_opens() -> None:
    text = closed(window("02:00", 120, Day.SAT, Day.SUN), SATURDAY + 27 * HOUR + 2 * HOUR)
    assert (
        text
        == "restarts wait for the window Sat, Sun 02:00 UTC for 120 minutes; it opens at 2026-12-05T02:00:00Z"
    )
    assert closed(None, SATURDAY) == ""


def outside(view: KubeView) -> Facts:
    return replace(facts(view), restarts_wait="restarts wait for the window")


def required(found: Facts, decision: Decision) -> tuple[str, str, str]:
    every = conditions(found, decision, health_of(found), (), (), 1)
    one = next(one for one in every if one.type == "RestartRequired")
    return one.status, one.reason, one.message


def test_restarts_wait_for_the_window_and_the_condition_names_it() -> None:
    found = outside(kube(OLD))
    decision = decide(found, rendered())
    assert deleted(decision) == []
    assert required(found, decision) == ("True", "OutsideWindow", "s2-0: restarts wait for the window")
    opened = decide(facts(kube(OLD)), rendered())
    assert deleted(opened) == ["s2-0"]
    assert required(facts(kube(OLD)), opened)[:2] == ("True", "TemplateChanged")
    paused = replace(found, desired=replace(found.desired, paused=True))
    assert required(paused, decide(paused, rendered()))[:2] == ("True", "Paused")
    assert required(facts(), decide(facts(), rendered())) == ("False", "AsWanted", "")


def test_a_pod_that_cannot_run_waits_for_no_window() -> None:
    stuck = {2: pod("t0", ready=False, stuck="ImagePullBackOff")}
    assert deleted(decide(outside(kube(stuck)), rendered())) == ["s2-0"]


def test_a_server_that_cannot_run_waits_for_no_window() -> None:
    cannot_run = PodView("uid", "server", "t0", ready=False, stuck="CrashLoopBackOff")
    for stuck, waits in (("", True), ("CrashLoopBackOff", False)):
        view = kube()
        view = replace(view, pods={**view.pods, "server": replace(cannot_run, stuck=stuck)})
        assert _servers_wait(outside(view), view) is waits


def test_outside_the_window_servers_keep_their_template_and_are_scaled() -> None:
    before = with_digest(objects(cluster())["Deployment", "ledger-server"])
    images = {"server": "waltz-server:9"}
    changed = cluster({"images": images, "servers": {"replicas": 4}})
    wanted = with_digest(objects(changed)["Deployment", "ledger-server"])
    kept = keeping_template(wanted, before.body)
    assert kept.body["spec"]["template"] == before.body["spec"]["template"]
    assert kept.body["spec"]["replicas"] == 4
    assert kept.template_hash == before.template_hash
    scaled = with_digest(objects(cluster({"servers": {"replicas": 4}}))["Deployment", "ledger-server"])
    assert kept == scaled
