"""A small asynchronous client of the Kubernetes API: objects are dictionaries, every call has a deadline and
ends in a typed error.

Underneath is the `ApiClient` of the `kubernetes` package (its asyncio side); its generated classes for
each resource are not used: the operator writes with server-side apply, and what it reads is turned into its
own types one step later.

Rules
  1. A call is made once. KubeUnavailableError means that the outcome of a write is unknown; who called looks
     again before writing.
  2. Every write goes through one field manager. `uid` and `resource_version` are preconditions checked by
     the API server.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from waltz_operator.api.metadata import FIELD_MANAGER
from waltz_operator.kube.errors import KubeError, KubeUnavailableError, error_of
from waltz_operator.kube.kinds import Kind, kind_of

Object = dict[str, Any]

DEFAULT_TIMEOUT_SECONDS = 10.0
_PAGE = 250
_USER_AGENT = "waltz-operator"


class Kube(Protocol):
    """What the operator needs of the API server; tests have others than `KubeClient`."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """One object; KubeNotFoundError."""
        ...

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """All objects with these labels, in one namespace or everywhere."""
        ...

    async def apply(self, obj: Mapping[str, Any]) -> Object:
        """Server-side apply, forced on our own fields. A `uid` or `resourceVersion` in the metadata is a
        precondition."""
        ...

    async def create(self, obj: Mapping[str, Any]) -> Object:
        """KubeConflictError when it exists."""
        ...

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        """The whole object, or its status, as read and changed; KubeConflictError when it changed since."""
        ...

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Object:
        """JSON merge patch of the object, or of its status; with `metadata.resourceVersion` or
        `metadata.uid` in the patch a precondition."""
        ...

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
        """Delete exactly this object; KubeConflictError when another one has its name now, KubeNotFoundError
        when there is none."""
        ...


async def _write_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """aiohttp sends a PUT or DELETE again when the connection ends without an answer; what became
    of the first would not be known."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET" or isinstance(error, aiohttp.ClientConnectorError):
            raise
        raise aiohttp.ClientConnectionError(f"the connection ended: {error}") from error


class KubeClient:
    """`Kube` over HTTP. Owner: who made it closes it."""

    def __init__(
        self, configuration: Configuration, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> None:
        reported = configuration.client_session_kwargs or {}
        configuration.client_session_kwargs = {**reported, "middlewares": (_write_once,)}
        self._api = ApiClient(configuration)
        self._api.user_agent = _USER_AGENT
        self._timeout_seconds = timeout_seconds

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        return await self._call("GET", kind.path(namespace, name))

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        query = {"limit": str(_PAGE)}
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found: list[Object] = []
        while True:
            page = await self._call("GET", kind.path(namespace), query)
            for item in page.get("items") or ():
                # the items of a list do not say what they are
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
                item["metadata"].pop("managedFields", None)  # half of most objects, and nobody reads it
                found.append(item)
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return found
            query["continue"] = more

    async def apply(self, obj: Mapping[str, Any]) -> Object:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        return await self._call(
            "PATCH",
            kind.path(metadata.get("namespace"), metadata["name"]),
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            obj,
            "application/apply-patch+yaml",
        )

    async def create(self, obj: Mapping[str, Any]) -> Object:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        return await self._call(
            "POST", kind.path(obj["metadata"].get("namespace")), {"fieldManager": FIELD_MANAGER}, obj
        )

    async def replace(self, obj: Mapping[str, Any], *, status: bool = False) -> Object:
        kind = kind_of(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"], "status" if status else None)
        return await self._call("PUT", path, {"fieldManager": FIELD_MANAGER}, obj)

    async def merge_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        status: bool = False,
    ) -> Object:
        path = kind.path(namespace, name, "status" if status else None)
        return await self._call(
            "PATCH", path, {"fieldManager": FIELD_MANAGER}, patch, "application/merge-patch+json"
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """`grace_seconds`: instead of the object's own period of grace (seconds)."""
        preconditions = {"uid": uid}
        if resource_version is not None:
            preconditions["resourceVersion"] = resource_version
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": preconditions,
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._call("DELETE", kind.path(namespace, name), None, options)

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        what = f"{method} {path}"
        try:
            async with asyncio.timeout(self._timeout_seconds):
                _, url, headers, _, _ = await self._api.param_serialize(
                    method,
                    path,
                    header_params={"Accept": "application/json", "Content-Type": content_type},
                    auth_settings=["BearerToken"],
                )
                if query:
                    url += "?" + urlencode(query)
                response = await self._api.call_api(
                    method, url, headers, body, _request_timeout=aiohttp.ClientTimeout(self._timeout_seconds)
                )
                raw: bytes = await response.read()  # type: ignore[no-untyped-call]
                status: int = response.status
        except (TimeoutError, aiohttp.ClientError, OSError, ApiException) as error:
            reason = str(error) or f"no answer within {self._timeout_seconds:g} s"
            raise KubeUnavailableError(f"{what}: {reason}") from error
        if not 200 <= status < 300:
            raise error_of(status, raw, what)
        try:
            value = json.loads(raw)
        except ValueError:
            raise KubeUnavailableError(f"{what}: the answer is not JSON") from None
        if not isinstance(value, dict):
            raise KubeError(f"{what}: the answer is not an object")
        return value
