"""An API server of which nothing is asked; tests fill in what they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waltz_operator.kube.client import Object
from waltz_operator.kube.kinds import Kind


class UnusedKube:
    """Every call is one that the test did not expect."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        raise AssertionError(f"get {kind.kind} {name}")

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        raise AssertionError(f"list {kind.kind}")

    async def apply(self, obj: Mapping[str, Any]) -> Object:
        raise AssertionError(f"apply {obj}")

    async def create(self, obj: Mapping[str, Any]) -> Object:
        raise AssertionError(f"create {obj}")

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        raise AssertionError(f"replace {obj}")

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Object:
        raise AssertionError(f"patch {kind.kind} {name}")

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str = "Background",
    ) -> None:
        raise AssertionError(f"delete {kind.kind} {name}")
