"""kubectl, bound to one cluster and namespace. What is only read is read without a process of its own
(`reader`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.e2e.reader import reader
from tests.e2e.shell import CommandError, run

T = TypeVar("T")
POLL_SECONDS = 0.5


class Timeout(Exception):
    """What was waited for did not come."""


def wait_until(
    what: str, probe: Callable[[], T | None], timeout_seconds: float, *, pause_seconds: float = POLL_SECONDS
) -> T:
    """The first answer of `probe` that is neither None nor False; a failing command counts as none. Timeout
    says the last failure."""
    deadline, problem = time.monotonic() + timeout_seconds, ""
    while True:
        try:
            found = probe()
            problem = ""
        except CommandError as error:
            found, problem = None, f" (last: {error})"
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise Timeout(f"{what}: not within {timeout_seconds:g} s{problem}")
        time.sleep(pause_seconds)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """One namespace of one cluster; without a name, objects say theirs."""

    kubeconfig: Path
    namespace: str

    def in_namespace(self, namespace: str) -> Kubectl:
        """The same cluster, another namespace."""
        return replace(self, namespace=namespace)

    def __call__(self, *arguments: str, text: str | None = None, timeout_seconds: float = 120.0) -> str:
        """Run it. CommandError."""
        where = ["-n", self.namespace] if self.namespace else []
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *where, *arguments]
        return run(command, text=text, timeout_seconds=timeout_seconds)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects."""
        self("apply", "-f", "-", text=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object. CommandError when it is not there."""
        found = self.find(kind, name)
        if found is None:
            raise CommandError(f"{kind} {name} is not there")
        return found

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """One object, or None when it is not there."""
        return reader(self.kubeconfig).find(kind, self.namespace, name)

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Objects of a kind, by labels."""
        return reader(self.kubeconfig).list(kind, self.namespace, selector)

    def patch(self, kind: str, name: str, patch: Mapping[str, Any]) -> None:
        """A merge patch."""
        self("patch", kind, name, "--type", "merge", "-p", json.dumps(patch))
