"""An API server that keeps objects by kind and name, as far as tests of single writes need it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from operator_tests.kube.unused import UnusedKube
from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeConflictError, KubeNotFoundError
from waltz_operator.kube.kinds import Kind

T = TypeVar("T")


def over_the_wire(value: T) -> T:
    """What comes of it at the other end: a copy, faster than by `copy`."""
    copied: T = json.loads(json.dumps(value))
    return copied


class ObjectsKube(UnusedKube):
    """`refuse`: (kind, name) → the error that every write of it ends with. `writes`: every write that
    arrived, also the refused ones."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {(one["kind"], one["metadata"]["name"]): over_the_wire(one) for one in objects}
        self.refuse: dict[tuple[str, str], Exception] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.applied: list[Object] = []
        self.patched: list[Object] = []

    def _arrives(self, verb: str, kind: str, name: str) -> None:
        self.writes.append((verb, kind, name))
        if (kind, name) in self.refuse:
            raise self.refuse[kind, name]

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        try:
            return over_the_wire(self.objects[kind.kind, name])
        except KeyError:
            raise KubeNotFoundError(f"no {kind.kind} {name}", status=404) from None

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        wanted = (labels or {}).items()
        found = [one for (of, _), one in self.objects.items() if of == kind.kind]
        return [
            over_the_wire(one) for one in found if wanted <= (one["metadata"].get("labels") or {}).items()
        ]

    async def apply(self, obj: Mapping[str, Any]) -> Object:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._arrives("apply", kind, name)
        self.applied.append(dict(obj))
        return self._kept(obj)

    async def create(self, obj: Mapping[str, Any]) -> Object:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._arrives("create", kind, name)
        if (kind, name) in self.objects:
            raise KubeConflictError(f"{kind} {name} exists", status=409, reason="AlreadyExists")
        return self._kept(obj)

    def _kept(self, obj: Mapping[str, Any]) -> Object:
        made = over_the_wire(dict(obj))
        made["metadata"].setdefault("uid", f"uid-{len(self.writes)}")
        made["metadata"]["resourceVersion"] = str(len(self.writes))
        self.objects[made["kind"], made["metadata"]["name"]] = made
        return over_the_wire(made)

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._arrives("status" if status else "replace", kind, name)
        found = self.objects[kind, name]
        found["status" if status else "spec"] = over_the_wire(obj["status" if status else "spec"])
        found["metadata"]["resourceVersion"] = str(len(self.writes))
        return over_the_wire(found)

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Object:
        self._arrives("status" if status else "patch", kind.kind, name)
        self.patched.append(dict(patch))
        found = self.objects[kind.kind, name]
        for part, value in patch.items():
            found[part] = {**(found.get(part) or {}), **over_the_wire(value)}
        found["metadata"]["resourceVersion"] = str(len(self.writes))
        return over_the_wire(found)

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
        self._arrives("delete", kind.kind, name)
        if self.objects.pop((kind.kind, name), None) is None:
            raise KubeNotFoundError(f"no {kind.kind} {name}", status=404)
