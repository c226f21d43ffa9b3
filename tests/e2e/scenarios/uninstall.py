"""The operator is taken away as docs/operator.md says, and installed again for one namespace only."""

from __future__ import annotations

from typing import Any

from tests.e2e.kubectl import wait_until
from tests.e2e.scenarios.start import install_operator, tagged
from tests.e2e.world import CLUSTER, NAMESPACE, OPERATOR_NAMESPACE, WAIT_SECONDS, World

ONLY = "waltz"
"""The namespace that the operator of manifests/overlays/namespaced works in; it is not one of its objects."""


def uninstall(world: World) -> None:
    """Nothing of ours stays: no definition, no role, no namespace."""
    everywhere = world.kubectl.in_namespace("")
    for kind in ("waltzmigrations", "waltzclusters"):
        everywhere("delete", kind, "--all", "-A")
    with tagged("base") as folder:
        everywhere("delete", "-k", folder, timeout_seconds=WAIT_SECONDS)
    left = everywhere(
        *("get", "crd,clusterrole,clusterrolebinding,namespace", "-o", "name"),
        *("-l", "app.kubernetes.io/name=waltz-operator"),
    ).split()
    definitions = [name for name in everywhere("get", "crd", "-o", "name").split() if "waltz.dev" in name]
    if left or definitions:
        raise AssertionError(f"left behind: {[*left, *definitions]}")


def namespaced(world: World) -> None:
    """With rights in one namespace it makes a cluster there, takes it away again, and leaves other namespaces
    alone."""
    world.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ONLY}})
    install_operator(world, "overlays/namespaced")
    here = world.kubectl.in_namespace(ONLY)
    specification = world.specification()
    specification["spec"]["reclaimPolicy"] = "Delete"
    here.apply(specification)
    world.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    world.kubectl.apply(specification)  # in a namespace that is none of its business
    here("wait", f"waltzcluster/{CLUSTER}", "--for=condition=Available", "--timeout=5m", timeout_seconds=320)
    if world.cluster().get("status"):
        raise AssertionError("the operator looked at a namespace that it was not given")
    refused = _log(world, "forbidden")
    here("delete", "waltzcluster", CLUSTER, timeout_seconds=WAIT_SECONDS)
    wait_until("its volumes are gone", lambda: not here.list("pvc"), WAIT_SECONDS)
    refused += _log(world, "forbidden")
    if refused:
        raise AssertionError(f"rights are missing: {refused[0]}")


def _log(world: World, word: str) -> list[Any]:
    """Lines of the operator's log with a word."""
    operator = world.kubectl.in_namespace(OPERATOR_NAMESPACE)
    return [
        line for line in operator("logs", "deployment/waltz-operator").splitlines() if word in line.lower()
    ]
