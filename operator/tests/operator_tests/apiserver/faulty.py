"""A client of the API server for the operator that has bad days: old answers, conflicts, lost answers,
forbidden verbs."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube, Object
from waltz_operator.kube.errors import KubeConflictError, KubeForbiddenError, KubeUnavailableError
from waltz_operator.kube.kinds import Kind, kind_of


class FaultyKube:
    """In front of a real one. Everything is switched off at first.

    `old`: reads are answered as they were answered last before it was switched on, where they were.
    `conflicts`, `lost_answers`: the first write of each kind and name is refused, or done and then
    unknown. `forbidden`: (verb, kind) that the role has not.
    """

    def __init__(self, real: Kube) -> None:
        self._real = real
        self._answers: dict[tuple[str, ...], Any] = {}
        self._hit: set[tuple[str, str, str]] = set()
        self.old = False
        self.old_answers = 0
        self.conflicts = False
        self.lost_answers = False
        self.forbidden: set[tuple[str, Kind]] = set()

    async def _read(self, key: tuple[str, ...], really: Callable[[], Awaitable[Any]]) -> Any:
        if self.old and key in self._answers:
            self.old_answers += 1
        else:
            self._answers[key] = await really()
        return copy.deepcopy(self._answers[key])

    async def _write(self, verb: str, kind: Kind, name: str, really: Callable[[], Awaitable[Any]]) -> Any:
        self._permit(verb, kind)
        first = kind is not kinds.EVENT and (verb, kind.kind, name) not in self._hit
        self._hit.add((verb, kind.kind, name))
        if first and self.conflicts:
            raise KubeConflictError(f"{verb} {kind.kind} {name}: somebody was faster", status=409)
        answer = await really()
        if first and self.lost_answers:
            raise KubeUnavailableError(f"{verb} {kind.kind} {name}: the answer was lost")
        return answer

    def _permit(self, verb: str, kind: Kind) -> None:
        if (verb, kind) in self.forbidden:
            raise KubeForbiddenError(f"{verb} {kind.plural} is forbidden", status=403, reason="Forbidden")

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        self._permit("get", kind)
        found = await self._read(("get", kind.kind, name), lambda: self._real.get(kind, namespace, name))
        return dict(found)

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        self._permit("list", kind)
        found = await self._read(("list", kind.kind), lambda: self._real.list(kind, namespace, labels))
        return [*found]

    async def apply(self, obj: Mapping[str, Any]) -> Object:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        done = await self._write("patch", kind, obj["metadata"]["name"], lambda: self._real.apply(obj))
        return dict(done)

    async def create(self, obj: Mapping[str, Any]) -> Object:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        name = str(obj["metadata"].get("name", ""))
        return dict(await self._write("create", kind, name, lambda: self._real.create(obj)))

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        name = str(obj["metadata"]["name"])
        done = await self._write("update", kind, name, lambda: self._real.replace(obj, status=status))
        return dict(done)

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Object:
        done = await self._write(
            "merge", kind, name, lambda: self._real.merge_patch(kind, namespace, name, patch, status=status)
        )
        return dict(done)

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
        await self._write(
            "delete",
            kind,
            name,
            lambda: self._real.delete(
                kind, namespace, name, uid=uid, resource_version=resource_version, propagation=propagation
            ),
        )
