"""From nothing to a cluster that is written to."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.e2e.images import SHIPPED, TAG
from tests.e2e.shell import ROOT
from tests.e2e.world import NAMESPACE, OPERATOR_NAMESPACE, WAIT_SECONDS, World

QUIET_SECONDS = 5.0
MANIFESTS = ROOT / "manifests"


def install(world: World) -> None:
    """Custom resources, roles and the operator as `kubectl apply -k manifests/base` does it; then the
    cluster."""
    install_operator(world)
    world.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    start = time.monotonic()
    world.kubectl.apply(world.specification())
    world.wait_for("Available", "True", WAIT_SECONDS)
    world.notes.append(f"Available {time.monotonic() - start:.0f} s after apply (target 90)")
    world.settle()
    world.load.start(world.cluster()["status"]["endpoints"])


def install_operator(world: World, form: str = "base") -> None:
    """One of the kustomizations under manifests, with this run's tag."""
    operator = world.kubectl.in_namespace(OPERATOR_NAMESPACE)
    with tagged(form) as folder:
        world.kubectl.in_namespace("")("apply", "--server-side", "-k", folder)
    operator("wait", "--for=condition=Established", "crd", "waltzclusters.waltz.dev", "--timeout=60s")
    operator("rollout", "status", "deployment/waltz-operator", "--timeout=120s")


@contextmanager
def tagged(form: str) -> Iterator[str]:
    """A folder with a kustomization that is manifests/FORM, but for the tag of the images."""
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.relpath(MANIFESTS / form, Path(folder).resolve())
        images = [{"name": name, "newTag": TAG} for name in SHIPPED]
        kustomization = {"resources": [base], "images": images}
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        yield folder


def nothing(world: World) -> None:
    """What gap the load has when nothing happens: the others are to be seen next to it."""
    time.sleep(QUIET_SECONDS)
