"""What is kept of a scenario that failed: objects, events and logs, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.kubectl import Kubectl
from tests.e2e.shell import CommandError

_KINDS = "waltzclusters,waltzmigrations,statefulsets,deployments,jobs,pods,persistentvolumeclaims,services,configmaps,leases"
_LOG_LINES = "2000"


def keep(kubectl: Kubectl, namespaces: list[str], folder: Path) -> None:
    """Write everything that can be had; what cannot says why. Secrets are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "nodes.txt", kubectl, "get", "nodes", "-o", "wide")
    for namespace in namespaces:
        here, place = kubectl.in_namespace(namespace), folder / namespace
        place.mkdir(exist_ok=True)
        _write(place / "objects.yaml", here, "get", _KINDS, "-o", "yaml")
        _write(place / "objects.txt", here, "get", _KINDS, "-o", "wide")
        _write(place / "events.txt", here, "get", "events", "--sort-by=.lastTimestamp", "-o", "wide")
        for pod in _names(here):
            _write(place / f"{pod}.log", here, "logs", pod, "--all-containers", "--tail", _LOG_LINES)
            _write(place / f"{pod}.previous.log", here, "logs", pod, "--previous", "--tail", _LOG_LINES)


def _names(kubectl: Kubectl) -> list[str]:
    try:
        return [name.removeprefix("pod/") for name in kubectl("get", "pods", "-o", "name").split()]
    except CommandError:
        return []


def _write(path: Path, kubectl: Kubectl, *arguments: str) -> None:
    try:
        text = kubectl(*arguments)
    except CommandError as error:
        if "previous terminated container" in str(error):
            return
        text = f"{error}\n"
    path.write_text(text)
