"""The objects of each form of the install, to be compared: kustomizations, the rendered file, the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from operator_tests.yaml_text import documents

ROOT = Path(__file__).resolve().parents[4]
MANIFESTS = ROOT / "manifests"
CHART = MANIFESTS / "chart"
Object = dict[str, Any]
Key = tuple[str, str, str]


def keyed(objects: list[Object]) -> dict[Key, Object]:
    """By kind, namespace and name; none is there twice."""
    found = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in objects
    }
    assert len(found) == len(objects)
    return found


def kustomized(folder: Path) -> list[Object]:
    """What kustomize makes of a folder of ours, in its own order: resources, labels, arguments of the
    operator. Another field of a kustomization fails."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    fields = kustomization.keys() - {"apiVersion", "kind"}
    assert fields <= {"resources", "labels", "patches"}, fields
    objects = []
    for name in kustomization["resources"]:
        path = folder / name
        objects += kustomized(path) if path.is_dir() else documents(path.read_text())
    for entry in kustomization.get("labels", ()):
        assert entry.keys() == {"pairs"}
        for one in objects:
            one["metadata"]["labels"] = {**one["metadata"].get("labels", {}), **entry["pairs"]}
    for entry in kustomization.get("patches", ()):
        (patch,) = documents((folder / entry["path"]).read_text())
        (target,) = (one for one in objects if one["kind"] == patch["kind"] == "Deployment")
        (container,) = patch["spec"]["template"]["spec"]["containers"]
        target["spec"]["template"]["spec"]["containers"][0].update(container)
    return objects


def kubectl() -> str | None:
    places = [os.environ.get("KUBEBUILDER_ASSETS", ""), os.environ.get("PATH", "")]
    return shutil.which("kubectl", path=os.pathsep.join(places))


def helm() -> str | None:
    """On PATH, or what `make helm` has built."""
    return shutil.which("helm", path=os.pathsep.join([os.environ.get("PATH", ""), str(ROOT / ".helm")]))


def render_chart(
    program: str, values: Object, *, namespace: str = "waltz-system"
) -> subprocess.CompletedProcess[str]:
    """`helm template`, with these values."""
    return subprocess.run(
        [program, "template", "waltz", str(CHART), "--namespace", namespace, "--kube-version", "1.30.0",
         "--values", "-"],
        input=yaml.safe_dump(values), capture_output=True, text=True, check=False,
    )  # fmt: skip
