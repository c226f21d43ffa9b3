"""The first write, as docs/operator-first-write.md has it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.e2e.images import TAG
from tests.e2e.shell import ROOT, run
from tests.e2e.world import CLUSTER, NAMESPACE, World
from tests.integration.cli.blocks import blocks

PAGE = ROOT / "docs/operator-first-write.md"
EXAMPLE = "manifests/examples/client-pod.yaml"
TEXT = "the first one"


def follow_the_page(world: World) -> None:
    """Every command of the page, in its order, with the tag and the namespace of this run; what was appended
    is what is read."""
    shown = []
    for block in blocks(PAGE, ROOT):
        for command in block.commands:
            arguments = shlex.split(command)[1:]
            text = None
            if EXAMPLE in arguments:
                arguments[arguments.index(EXAMPLE)] = "-"
                text = _example()
            shown.append(world.kubectl(*arguments, text=text, timeout_seconds=300.0))
    if not any(TEXT in output for output in shown):
        raise AssertionError(f"what was appended was not read: {shown}")
    _with_one_command(world)


def _example() -> str:
    text = (ROOT / EXAMPLE).read_text()
    text = text.replace("waltz-tools:0.1.0", f"waltz-tools:{TAG}")
    return text.replace(".default.svc", f".{NAMESPACE}.svc")


def _with_one_command(world: World) -> None:
    """`waltz k8s shell` runs a command with the cluster's certificate, and leaves no pod."""
    options = ["--namespace", NAMESPACE, "--kubeconfig", str(world.kubectl.kubeconfig), "--timeout", "300"]
    program = str(Path(sys.executable).parent / "waltz")
    command = ["waltz", "tail", "--partition", "0", "--header", "7", "--last", "1"]
    found = run([program, "k8s", "shell", CLUSTER, *options, "--", *command], timeout_seconds=360.0)
    if TEXT not in found:
        raise AssertionError(f"waltz k8s shell: {found}")
    left = [
        pod["metadata"]["name"] for pod in world.kubectl.list("pods") if "-shell-" in pod["metadata"]["name"]
    ]
    if any("deletionTimestamp" not in world.kubectl.get("pod", name)["metadata"] for name in left):
        raise AssertionError(f"waltz k8s shell left {left}")
