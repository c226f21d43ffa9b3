"""The client against a small HTTP server: what it sends, and what the answers and the lack of one become."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from waltz_operator.api.metadata import FIELD_MANAGER
from waltz_operator.kube import kinds
from waltz_operator.kube.client import KubeClient
from waltz_operator.kube.errors import (
    KubeConflictError,
    KubeError,
    KubeForbiddenError,
    KubeInvalidError,
    KubeNotFoundError,
    KubeUnavailableError,
)

POD = "/api/v1/namespaces/demo/pods/p"
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l", "namespace": "demo"},
}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/demo/leases"


class Request(NamedTuple):
    """One that the server got."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    body: Any


class Api:
    """Answers each request with the next of `answers` (status, body); None: never, "cut": the connection
    ends."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[tuple[int, bytes] | str | None] = []
        self.token = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.token = request.headers.get("Authorization", "")
        found = Request(
            request.method,
            request.path,
            dict(request.query),
            request.headers.get("Content-Type", ""),
            json.loads(raw) if raw else None,
        )
        self.requests.append(found)
        answer = self.answers.pop(0) if self.answers else (200, b"{}")
        if answer is None:
            await asyncio.Event().wait()
        if not isinstance(answer, tuple):
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return web.Response(status=answer[0], body=answer[1])

    def says(self, *objects: object, status: int = 200) -> None:
        """The next answers."""
        self.answers += [(status, json.dumps(one).encode()) for one in objects]


class Stage(NamedTuple):
    """Both ends."""

    api: Api
    kube: KubeClient


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    api, app = Api(), web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    server = TestServer(app, shutdown_timeout=0.1)
    await server.start_server()
    configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
    configuration.api_key = {"BearerToken": "Bearer secret-token"}
    kube = KubeClient(configuration, timeout_seconds=0.5)
    yield Stage(api, kube)
    await kube.close()
    await server.close()


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (403, KubeForbiddenError),
        (404, KubeNotFoundError),
        (409, KubeConflictError),
        (410, KubeUnavailableError),
        (422, KubeInvalidError),
        (429, KubeUnavailableError),
        (500, KubeUnavailableError),
    ],
)
async def test_a_refusal_is_a_typed_error_with_the_servers_words(
    stage: Stage, status: int, cls: type[KubeError]
) -> None:
    stage.api.says({"kind": "Status", "message": "words", "reason": "Reason"}, status=status)
    with pytest.raises(cls) as caught:
        await stage.kube.get(kinds.POD, "demo", "p")
    assert str(caught.value) == f"GET {POD}: words"
    assert (caught.value.status, caught.value.reason) == (status, "Reason")
    assert len(stage.api.requests) == 1, "a call is made once"


@pytest.mark.parametrize("answer", [None, "cut", (200, b"not json"), (200, b"")])
async def test_without_an_answer_the_outcome_of_a_write_is_unknown(
    stage: Stage, answer: tuple[int, bytes] | str | None
) -> None:
    stage.api.answers = [answer]
    with pytest.raises(KubeUnavailableError) as caught:
        await stage.kube.replace(LEASE)
    assert caught.value.retriable
    assert str(caught.value).startswith(f"PUT {LEASES}/l: ")
    assert "secret-token" not in str(caught.value)
    assert len(stage.api.requests) == 1, "a write is never repeated by the client"


async def test_nobody_listening_is_told_in_one_line() -> None:
    kube = KubeClient(Configuration(host="http://127.0.0.1:9"), timeout_seconds=0.5)
    with pytest.raises(KubeUnavailableError) as caught:
        await kube.get(kinds.POD, "demo", "p")
    assert "\n" not in str(caught.value)
    await kube.close()


async def test_an_answer_that_is_no_object_is_an_error(stage: Stage) -> None:
    stage.api.says([1, 2])
    with pytest.raises(KubeError, match="not an object"):
        await stage.kube.get(kinds.POD, "demo", "p")


async def test_a_list_is_read_to_its_end_and_its_items_say_what_they_are(stage: Stage) -> None:
    stage.api.says(
        {"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "next page"}},
        {"items": [{"metadata": {"name": "b"}}], "metadata": {}},
    )
    found = await stage.kube.list(kinds.POD, "demo", {"b": "2", "a": "1"})
    assert [(one["kind"], one["apiVersion"], one["metadata"]["name"]) for one in found] == [
        ("Pod", "v1", "a"),
        ("Pod", "v1", "b"),
    ]
    first, second = (one.query for one in stage.api.requests)
    assert first["labelSelector"] == second["labelSelector"] == "a=1,b=2"
    assert ("continue" in first, second["continue"]) == (False, "next page")


async def test_a_list_that_breaks_off_is_never_taken_for_all_of_it(stage: Stage) -> None:
    stage.api.says({"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "x"}})
    stage.api.says({"message": "the continue token expired"}, status=410)
    with pytest.raises(KubeUnavailableError):
        await stage.kube.list(kinds.POD, None)
    assert stage.api.requests[0].path == "/api/v1/pods"


async def test_each_write_is_one_request_of_our_field_manager(stage: Stage) -> None:
    ours = {"fieldManager": FIELD_MANAGER}
    await stage.kube.apply(LEASE)
    await stage.kube.create(LEASE)
    await stage.kube.replace(LEASE)
    await stage.kube.replace(LEASE, status=True)
    await stage.kube.merge_patch(kinds.LEASE, "demo", "l", {"metadata": {"resourceVersion": "5"}})
    assert stage.api.requests == [
        Request("PATCH", f"{LEASES}/l", {**ours, "force": "true"}, "application/apply-patch+yaml", LEASE),
        Request("POST", LEASES, ours, "application/json", LEASE),
        Request("PUT", f"{LEASES}/l", ours, "application/json", LEASE),
        Request("PUT", f"{LEASES}/l/status", ours, "application/json", LEASE),
        Request(
            "PATCH",
            f"{LEASES}/l",
            ours,
            "application/merge-patch+json",
            {"metadata": {"resourceVersion": "5"}},
        ),
    ]
    assert stage.api.token == "Bearer secret-token"


async def test_what_is_deleted_is_named_by_its_uid(stage: Stage) -> None:
    await stage.kube.delete(kinds.POD, "demo", "p", uid="u")
    await stage.kube.delete(kinds.POD, "demo", "p", uid="u", resource_version="7", grace_seconds=0)
    first, second = (one.body for one in stage.api.requests)
    assert first["preconditions"] == {"uid": "u"}
    assert first["propagationPolicy"] == "Background"
    assert "gracePeriodSeconds" not in first
    assert second["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert second["gracePeriodSeconds"] == 0
