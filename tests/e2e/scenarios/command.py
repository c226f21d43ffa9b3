"""`waltz k8s` on the real cluster."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import yaml

from tests.e2e.shell import run
from tests.e2e.world import CLUSTER, World

ELSEWHERE = "default"
"""A namespace without the cluster: what is rendered would be new there."""


def waltz(world: World, *arguments: str) -> str:
    """Run `waltz k8s`; its output. CommandError."""
    command = [
        str(Path(sys.executable).parent / "waltz"),
        "k8s",
        *arguments,
        "--namespace",
        world.kubectl.namespace,
    ]
    return run([*command, "--kubeconfig", str(world.kubectl.kubeconfig)])


def look(world: World) -> None:
    """What it shows of a healthy cluster: available, nothing to do; the report holds logs and no key; the
    rendered objects are valid."""
    status = waltz(world, "status", CLUSTER)
    if f"all {world.cluster()['spec']['partitions']} partitions take writes" not in status:
        raise AssertionError(f"status: {status}")
    plan = json.loads(waltz(world, "plan", CLUSTER, "--output", "json"))
    if plan["actions"] or plan["blocked"]:
        raise AssertionError(f"something is planned for a cluster at rest: {plan}")
    with tempfile.TemporaryDirectory() as folder:
        archive, specification = Path(folder) / "report.tar.gz", Path(folder) / "cluster.yaml"
        waltz(world, "report", CLUSTER, "--file", str(archive))
        _check(archive)
        specification.write_text(yaml.safe_dump(world.specification()))
        command = [str(Path(sys.executable).parent / "waltz"), "k8s", "render", str(specification)]
        rendered = run([*command, "--certificates", "--namespace", ELSEWHERE])
    apart = world.kubectl.in_namespace(ELSEWHERE)
    apart("apply", "--dry-run=server", "-f", "-", text=rendered)
    world.notes.append(f"{len(list(yaml.safe_load_all(rendered)))} objects rendered")


def _check(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        contents = [file.read() for name in names if (file := tar.extractfile(name)) is not None]
    if not any(CLUSTER in name and name.endswith(".log") for name in names):
        raise AssertionError(f"the report has no logs: {names}")
    if any(b"PRIVATE KEY" in content for content in contents):
        raise AssertionError("the report holds a private key")
