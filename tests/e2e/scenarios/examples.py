"""Every file that people are asked to apply is one that a real API server, and the operator, take as it
stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.e2e.kubectl import wait_until
from tests.e2e.shell import ROOT
from tests.e2e.world import WAIT_SECONDS, World

EXAMPLES = "waltz.dev/e2e=examples"
FOREIGN = (
    ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ("cert-manager.io", "v1", "Certificate", "certificates"),
    ("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"),
    ("spark.apache.org", "v1", "SparkApplication", "sparkapplications"),
)
"""Kinds of other projects that our files ask for: group, version, kind, plural."""
MANIFESTS = ROOT / "manifests"
APPLICATIONS = ROOT / "spark-on-k8s" / "deploy" / "rendered"
SPARK_NAMESPACE = "spark-jobs"


def apply_all(world: World) -> None:
    """Every example is applied, each in a namespace of its own where no pod may run; the operator takes all
    of them as valid, and lets them go with their namespaces. Kinds of other projects are there for that long,
    without anybody who acts on them."""
    definitions = [_definition(*kind) for kind in FOREIGN]
    names = [one["metadata"]["name"] for one in definitions]
    world.kubectl.in_namespace("").apply(*definitions)
    world.kubectl("wait", "--for=condition=Established", "crd", *names, "--timeout=60s")
    paths = [path for path in sorted((MANIFESTS / "examples").glob("*.yaml")) if path.stem != "client-pod"]
    files = {f"example-{path.stem}": path for path in paths}  # its pod may run: that is another scenario
    spaces = [*files, SPARK_NAMESPACE]
    world.kubectl.in_namespace("").apply(*(one for space in spaces for one in _space(space)))
    wait_until(
        "quotas hold", lambda: all("hard" in one["status"] for one in _all(world, "resourcequotas")), 60
    )
    for space, path in files.items():
        world.kubectl.in_namespace(space)("apply", "--server-side", "--field-manager=e2e", "-f", str(path))
    applications = _spark_applications(world)
    world.kubectl.in_namespace("")("apply", "-k", _relative(MANIFESTS / "monitoring"))
    clusters = wait_until("the operator has looked at the examples", lambda: _judged(world), WAIT_SECONDS)
    faults = [f"{name}: {valid['message']}" for name, valid in clusters.items() if valid["status"] != "True"]
    if faults:
        raise AssertionError("; ".join(faults))
    world.kubectl.in_namespace("")("delete", "-k", _relative(MANIFESTS / "monitoring"))
    world.kubectl("delete", "namespaces", "-l", EXAMPLES, "--wait=false")
    wait_until("the examples are gone", lambda: not world.kubectl.list("namespaces", EXAMPLES), WAIT_SECONDS)
    world.kubectl("delete", "crd", *names)
    world.notes.append(f"{len(files)} files, {len(clusters)} clusters, {applications} Spark applications")


def _spark_applications(world: World) -> int:
    """What docs/spark.md says for each of the two operators; how many applications there are."""
    folders = sorted(path for path in APPLICATIONS.iterdir() if path.is_dir())
    everywhere = world.kubectl.in_namespace("")
    for folder in folders:
        for name in ("objects", "kubeflow", "apache", "pod-monitor"):
            everywhere("apply", "-f", str(folder / f"{name}.yaml"))
    for group in ("sparkoperator.k8s.io", "spark.apache.org"):
        kind = f"sparkapplications.{group}"
        made = world.kubectl.in_namespace(SPARK_NAMESPACE).list(kind)
        if len(made) != len(folders):
            raise AssertionError(f"{len(made)} of {len(folders)} {kind} were made")
    return len(folders)


def _relative(folder: Path) -> str:
    """As somebody at the top of the repository writes it."""
    return os.path.relpath(folder)


def _definition(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "labels": dict([EXAMPLES.split("=")]),
            # Groups under k8s.io are refused without it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


def _space(name: str) -> tuple[dict[str, Any], ...]:
    labels = dict([EXAMPLES.split("=")])
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    metadata = {"name": "no-pods", "namespace": name, "labels": labels}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    return namespace, quota | {"spec": {"hard": {"pods": "0"}}}


def _all(world: World, kind: str) -> list[dict[str, Any]]:
    """Objects of the examples' namespaces."""
    found = world.kubectl.in_namespace("").list(kind)
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
