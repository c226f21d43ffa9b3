"""A Kubernetes of dictionaries for the tests of `waltz k8s`: objects, commands in pods, logs."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from waltz_operator.kube.client import Object
from waltz_operator.kube.errors import KubeConflictError, KubeError, KubeForbiddenError, KubeNotFoundError
from waltz_operator.kube.kinds import Kind, kind_of
from waltz_tools.k8s.access import Place, Session


@dataclass
class FakeKubernetes:
    """`objects` by (kind, namespace, name). `forbidden`: kinds that may not be listed."""

    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    answers: list[str | KubeError] = field(default_factory=list)
    commands: list[Sequence[str]] = field(default_factory=list)
    patches: list[Mapping[str, Any]] = field(default_factory=list)
    log: str = "a line"

    def add(self, kind: Kind, name: str, namespace: str = "default", **parts: Any) -> Object:
        labels = parts.pop("labels", {})
        metadata = {"name": name, "namespace": namespace, "labels": labels, "resourceVersion": "1"}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}
        self.objects[kind.kind, namespace, name] = body
        return body

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        try:
            return self.objects[kind.kind, namespace or "", name]
        except KeyError:
            raise KubeNotFoundError(f"no {kind.kind} {name}", status=404) from None

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        if kind.kind in self.forbidden:
            raise KubeForbiddenError(f"{kind.plural} is forbidden", status=403)
        return [
            body
            for (of, where, _), body in self.objects.items()
            if of == kind.kind
            and namespace in (None, where)
            and (labels or {}).items() <= body["metadata"]["labels"].items()
        ]

    async def create(self, obj: Mapping[str, Any]) -> Object:
        key = (obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])
        if key in self.objects:
            raise KubeConflictError("it exists", status=409)
        self.objects[key] = dict(obj)
        return self.objects[key]

    async def apply(self, obj: Mapping[str, Any]) -> Object:
        raise NotImplementedError(kind_of(obj["apiVersion"], obj["kind"]))

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        raise NotImplementedError

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Object:
        body = await self.get(kind, namespace, name)
        self.patches.append(patch)
        _merge(body, patch)
        return body

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
        await self.get(kind, namespace, name)
        del self.objects[kind.kind, namespace or "", name]

    async def run(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        self.commands.append(command)
        answer = self.answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    async def read(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        return self.log

    def opener(self) -> Callable[[Place], AbstractAsyncContextManager[Session]]:
        """In place of `open_session`."""

        @asynccontextmanager
        async def open_session(place: Place) -> AsyncIterator[Session]:
            yield Session(self, self, place)

        return open_session


def _merge(body: dict[str, Any], patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if isinstance(value, Mapping):
            _merge(body.setdefault(key, {}), value)
        else:
            body[key] = value
