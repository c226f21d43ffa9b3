"""More than one tenant, and more than one operator."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import yaml

from tests.e2e.chaos import LEASE, OPERATOR
from tests.e2e.images import TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.scenarios import rolling
from tests.e2e.scenarios.tenants import another
from tests.e2e.shell import ROOT, CommandError
from tests.e2e.world import CLUSTER, OPERATOR_NAMESPACE, WAIT_SECONDS, World

TENANT = "waltz-e2e-tenant"
SECOND = "waltz-second"
RESOURCES = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Deployment",
)
"""Of an installation, what a second one needs of its own."""
QUIET_SECONDS = 15.0


def steal_lease(world: World) -> None:
    """Somebody writes another name into the operator's Lease: it ends its work at once, and continues when
    nobody has renewed that one."""
    operator = world.kubectl.in_namespace(OPERATOR_NAMESPACE)
    holder = _holder(world)
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    operator.patch("lease", LEASE, {"spec": {"holderIdentity": "a-thief", "renewTime": now}})
    began = time.monotonic()
    wait_until("the operator has it again", lambda: _holder(world) not in ("", "a-thief"), WAIT_SECONDS)
    world.notes.append(f"{time.monotonic() - began:.0f} s until the operator worked again")
    if _holder(world) == holder:
        raise AssertionError("the operator went on as if nothing had happened")
    _comes_back(world)
    world.settle()


def neighbour(world: World) -> None:
    """One tenant has a typing error, and no pod of it may run, while the storage nodes of another one are
    restarted: they are, and the other one is reported."""
    body = world.specification()
    body["spec"]["servers"]["podTemplate"] = {"spec": {"nodeSelektor": {"a": "b"}}}
    here = world.kubectl.in_namespace(TENANT)
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-pods"}}
    here.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    here.apply(quota | {"spec": {"hard": {"pods": "0"}}})
    here.apply(body)
    wait_until(
        "the operator works on the tenant",
        lambda: _looked_at(here.get("waltzcluster", CLUSTER)),
        WAIT_SECONDS,
    )
    rolling.restart_storage(world)
    here("delete", "waltzcluster", CLUSTER, "--timeout=120s")
    here("delete", "namespace", TENANT, "--wait=false")


def second_installation(world: World) -> None:
    """A second installation watches all namespaces too: it writes nothing and says so, and takes the cluster
    over when the first one and its Lease are gone; then the first one comes back in the same way."""
    first, second = world.kubectl.in_namespace(OPERATOR_NAMESPACE), world.kubectl.in_namespace(SECOND)
    world.kubectl.in_namespace("").apply(*_installation())
    try:
        second("rollout", "status", "deployment/waltz-operator", "--timeout=180s")
        _works(world, OPERATOR_NAMESPACE)
        wait_until("it says that it changes nothing", lambda: _told(world), WAIT_SECONDS)
        _comes_back(world)
        time.sleep(QUIET_SECONDS)
        _works(world, OPERATOR_NAMESPACE)
        _hand_over(world, OPERATOR_NAMESPACE, SECOND)
        first("scale", "deployment/waltz-operator", "--replicas=1")
        first("rollout", "status", "deployment/waltz-operator", "--timeout=180s")
        time.sleep(QUIET_SECONDS)
        _works(world, SECOND)
        _hand_over(world, SECOND, OPERATOR_NAMESPACE)
    finally:
        first("scale", "deployment/waltz-operator", "--replicas=1")
        names = [
            f"{one['kind']}/{one['metadata']['name']}"
            for one in _installation()
            if "namespace" not in one["metadata"]
        ]
        world.kubectl.in_namespace("")("delete", "--wait=false", *names)
    world.settle()


def _hand_over(world: World, old: str, new: str) -> None:
    here = world.kubectl.in_namespace(old)
    here("scale", "deployment/waltz-operator", "--replicas=0")
    wait_until("it has ended", lambda: not here.list("pods", OPERATOR), WAIT_SECONDS)
    here("delete", "lease", LEASE, "--ignore-not-found")
    wait_until(
        f"{new} has taken the cluster over", lambda: _operator(world) == f"{new}/{LEASE}", WAIT_SECONDS
    )
    _comes_back(world)
    world.settle()


def _works(world: World, namespace: str) -> None:
    if _operator(world) != f"{namespace}/{LEASE}":
        raise AssertionError(f"{_operator(world)} works on the cluster, not {namespace}")


def _operator(world: World) -> str:
    return str(world.cluster()["status"].get("operator", ""))


def _holder(world: World) -> str:
    try:
        found = world.kubectl.in_namespace(OPERATOR_NAMESPACE).get("lease", LEASE)
    except CommandError:
        return ""
    return str(found["spec"].get("holderIdentity", ""))


def _told(world: World) -> bool:
    found = world.kubectl.list("events.events.k8s.io")
    return any(f"{SECOND}/{LEASE} changes nothing" in str(one.get("note")) for one in found)


def _comes_back(world: World) -> None:
    """Somebody works on the cluster."""
    uid = world.kubectl.get("service", CLUSTER)["metadata"]["uid"]
    world.kubectl("delete", "service", CLUSTER, "--wait=false")
    wait_until("a deleted Service is back", partial(another, world, "service", CLUSTER, uid), WAIT_SECONDS)


def _looked_at(body: dict[str, Any]) -> bool:
    return bool(body.get("status", {}).get("conditions"))


def _installation() -> list[dict[str, Any]]:
    """manifests/install.yaml a second time, under other names where they are those of the whole cluster."""
    text = (ROOT / "manifests/install.yaml").read_text()
    text = re.sub(r"(waltz-operator):\d[\w.]*", rf"\1:{TAG}", text).replace("waltz-system", SECOND)
    found = [one for one in yaml.safe_load_all(text) if one and one["kind"] in RESOURCES]
    for one in found:
        if one["kind"].startswith("ClusterRole"):
            one["metadata"]["name"] += "-second"
            one["metadata"].pop("labels", None)
            if "roleRef" in one:
                one["roleRef"]["name"] += "-second"
    return found
