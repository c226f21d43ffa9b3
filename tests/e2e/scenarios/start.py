"""From nothing to a cluster that is written to."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.images import SHIPPED, TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.shell import ROOT
from tests.e2e.world import NAMESPACE, OPERATOR_NAMESPACE, WAIT_SECONDS, World

QUIET_SECONDS = 10.0
EXAMPLES = "waltz.dev/e2e=examples"
FOREIGN = (
    ("monitoring.coreos.com", "PodMonitor", "podmonitors"),
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
    ("cert-manager.io", "Certificate", "certificates"),
)
"""Kinds of other projects that examples ask for: group, kind, plural."""
MANIFESTS = ROOT / "manifests"


def install(world: World) -> None:
    """Custom resources, roles and the operator as `kubectl apply -k manifests/base` does it; then the cluster."""
    install_operator(world)
    world.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    start = time.monotonic()
    world.kubectl.apply(world.specification())
    world.wait_for("Available", "True", WAIT_SECONDS)
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
    """Every example is applied, each in a namespace of its own where no pod may run; the operator takes all of them as valid, and lets
    them go with their namespaces. Kinds of other projects are there for that long, without anybody who acts on them."""
    definitions = [_definition(*kind) for kind in FOREIGN]
    names = [one["metadata"]["name"] for one in definitions]
    world.kubectl.in_namespace("").apply(*definitions)
    world.kubectl("wait", "--for=condition=Established", "crd", *names, "--timeout=60s")
    files = {f"example-{path.stem}": path for path in sorted((MANIFESTS / "examples").glob("*.yaml"))}
    world.kubectl.in_namespace("").apply(*(one for space in files for one in _space(space)))
    wait_until(
        "quotas hold", lambda: all("hard" in one["status"] for one in _all(world, "resourcequotas")), 60
    )
    for space, path in files.items():
        world.kubectl.in_namespace(space)("apply", "--server-side", "--field-manager=e2e", "-f", str(path))
    clusters = wait_until("the operator has looked at the examples", lambda: _judged(world), WAIT_SECONDS)
    faults = [f"{name}: {valid['message']}" for name, valid in clusters.items() if valid["status"] != "True"]
    if faults:
        raise AssertionError("; ".join(faults))
    world.kubectl("delete", "namespaces", "-l", EXAMPLES, "--wait=false")
    wait_until("the examples are gone", lambda: not world.kubectl.list("namespaces", EXAMPLES), WAIT_SECONDS)
    world.kubectl("delete", "crd", *names)
    world.notes.append(f"{len(files)} files, {len(clusters)} clusters")


def _definition(group: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": dict([EXAMPLES.split("=")])},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _space(name: str) -> tuple[dict[str, Any], ...]:
    labels = dict([EXAMPLES.split("=")])
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    metadata = {"name": "no-pods", "namespace": name, "labels": labels}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    return namespace, quota | {"spec": {"hard": {"pods": "0"}}}


def _all(world: World, kind: str) -> list[dict[str, Any]]:
    """Objects of the examples' namespaces."""
    found = json.loads(world.kubectl("get", kind, "--all-namespaces", "-o", "json"))["items"]
    return [one for one in found if one["metadata"]["namespace"].startswith("example-")]


def _judged(world: World) -> dict[str, dict[str, Any]] | None:
    """Condition Valid of every example, once all have one for what they say now."""
    found = {}
    for body in _all(world, "waltzclusters"):
        metadata, status = body["metadata"], body.get("status", {})
        conditions = {one["type"]: one for one in status.get("conditions", [])}
        if status.get("observedGeneration") != metadata["generation"] or "Valid" not in conditions:
            return None
        found[f"{metadata['namespace']}/{metadata['name']}"] = conditions["Valid"]
    return found
