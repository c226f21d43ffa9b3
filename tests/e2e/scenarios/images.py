"""What is in the images, and how their processes end."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from tests.e2e.chaos import OPERATOR
from tests.e2e.images import TAG
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.shell import ROOT, run
from tests.e2e.world import OPERATOR_NAMESPACE, SERVERS, STORAGE, World

MEMBERS = {
    "server": {"waltz-protocol", "waltz-cluster", "waltz-runtime", "waltz-server"},
    "storage": {"waltz-protocol", "waltz-cluster", "waltz-runtime", "waltz-storage"},
    "operator": {"waltz-protocol", "waltz-cluster", "waltz-runtime", "waltz-admin", "waltz-operator"},
    "tools": {
        "waltz-protocol",
        "waltz-cluster",
        "waltz-runtime",
        "waltz-admin",
        "waltz-client",
        "waltz-tools",
    },
}
TOOLS = ("gcc", "cc", "make", "git", "pip", "pip3", "java")
_LOOK = """
import importlib.metadata, json, os, shutil, sys
names = sorted(one.metadata["Name"].lower().replace("_", "-") for one in importlib.metadata.distributions())
print(json.dumps({"uid": os.getuid(), "names": names, "tools": [one for one in sys.argv[1:] if shutil.which(one)]}))
"""
_STOP = "import os, signal; os.kill(1, signal.SIGTERM)"
_PYTHON = "/opt/waltz/bin/python"


def hold_and_stop(world: World) -> None:
    """Nothing but what its member needs is in an image; SIGTERM to process 1 leads to an orderly end, with
    exit code 0."""
    for role in MEMBERS:
        faults = closure_faults(role)
        if faults:
            raise AssertionError(f"waltz-{role}: {'; '.join(faults)}")
    for selector, kubectl in (
        (STORAGE, world.kubectl),
        (SERVERS, world.kubectl),
        (OPERATOR, world.kubectl.in_namespace(OPERATOR_NAMESPACE)),
    ):
        name = kubectl.list("pods", selector)[0]["metadata"]["name"]
        clock = time.monotonic()
        code = _stop(kubectl, name)
        if code != 0:
            raise AssertionError(f"{name} ended with exit code {code} after SIGTERM")
        world.notes.append(f"{name} ended in order, {time.monotonic() - clock:.0f} s")
        world.settle()


def closure_faults(role: str) -> list[str]:
    """What is in an image and should not be, or the other way round, seen with a read-only root file
    system."""
    command = ["docker", "run", "--rm", "--read-only", "--network=none", "--entrypoint", _PYTHON]
    found = json.loads(run([*command, f"waltz-{role}:{TAG}", "-c", _LOOK, *TOOLS]))
    pinned = re.findall(
        r"^([A-Za-z0-9_.-]+)==", (ROOT / f"requirements/{role}.txt").read_text(), re.MULTILINE
    )
    names = set(found["names"])
    strangers = names - MEMBERS[role] - {name.lower().replace("_", "-") for name in pinned}
    faults = [f"{name} is none of its needs" for name in sorted(strangers)]
    faults += [f"{name} is not in it" for name in sorted(MEMBERS[role] - names)]
    faults += [f"the tool {name} is in it" for name in found["tools"]]
    return faults if found["uid"] else [*faults, "it runs as root"]


def _stop(kubectl: Kubectl, name: str) -> int:
    """SIGTERM to a pod's process 1; its exit code. The kubelet starts it again."""
    before = _container(kubectl, name)["restartCount"]
    kubectl("exec", name, "--", _PYTHON, "-c", _STOP)

    def ended() -> int | None:
        status = _container(kubectl, name)
        if status["restartCount"] == before and "terminated" not in status["state"]:
            return None
        last = status["state"].get("terminated") or status["lastState"]["terminated"]
        return int(last["exitCode"])

    return wait_until(f"{name} ends", ended, 90)


def _container(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.get("pod", name)["status"]["containerStatuses"][0]
    return found
