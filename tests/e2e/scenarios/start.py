"""From nothing to a cluster that is written to."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import yaml

from tests.e2e.images import SHIPPED, TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.shell import ROOT
from tests.e2e.world import CLUSTER, NAMESPACE, OPERATOR_NAMESPACE, World

QUIET_SECONDS = 20.0
EXAMPLES_NAMESPACE = "waltz-examples"
MANIFESTS = ROOT / "manifests"


def install(world: World) -> None:
    """Custom resources, roles and the operator as `kubectl apply -k manifests/base` does it; then the cluster."""
    install_operator(world)
    world.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    start = time.monotonic()
    world.kubectl.apply(world.specification())
    world.wait_for("Available", "True", 240)
    world.notes.append(f"Available {time.monotonic() - start:.0f} s after apply (target 90)")
    world.settle()
    world.load.start(world.cluster()["status"]["endpoints"])


def install_operator(world: World) -> None:
    """manifests/base with this run's tag."""
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.relpath(MANIFESTS / "base", Path(folder).resolve())
        images = [{"name": name, "newTag": TAG} for name in SHIPPED]
        kustomization = {"resources": [base], "images": images}
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        operator = world.kubectl.in_namespace(OPERATOR_NAMESPACE)
        operator("apply", "--server-side", "-k", folder)
    operator("wait", "--for=condition=Established", "crd", "waltzclusters.waltz.dev", "--timeout=60s")
    operator("rollout", "status", "deployment/waltz-operator", "--timeout=120s")


def nothing(world: World) -> None:
    """What gap the load has when nothing happens: the others are to be seen beside it."""
    time.sleep(QUIET_SECONDS)


def examples(world: World) -> None:
    """Every example is accepted by the API server as it stands."""
    found = sorted((MANIFESTS / "examples").glob("*.yaml"))
    world.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EXAMPLES_NAMESPACE}})
    apart = world.kubectl.in_namespace(EXAMPLES_NAMESPACE)
    for path in found:
        apart("apply", "--server-side", "--dry-run=server", "--field-manager=e2e", "-f", str(path))
    world.notes.append(f"{len(found)} files")


def endpoints(world: World) -> dict[str, str]:
    """Where clients connect to, once the status says so."""
    return wait_until(
        f"endpoints of {CLUSTER}", lambda: world.cluster().get("status", {}).get("endpoints"), 60
    )
