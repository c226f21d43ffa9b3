"""What each HTTP status of the API server becomes, and whether trying again can help."""

from __future__ import annotations

import json

import pytest

from waltz_operator.kube.errors import (
    KubeConflictError,
    KubeError,
    KubeForbiddenError,
    KubeInvalidError,
    KubeNotFoundError,
    KubeUnauthorizedError,
    KubeUnavailableError,
    error_of,
)

STATUSES: list[tuple[int, type[KubeError], bool]] = [
    (400, KubeInvalidError, False),
    (401, KubeUnauthorizedError, True),
    (403, KubeForbiddenError, False),
    (404, KubeNotFoundError, False),
    (405, KubeError, False),
    (409, KubeConflictError, True),
    (410, KubeUnavailableError, True),
    (412, KubeConflictError, True),
    (422, KubeInvalidError, False),
    (429, KubeUnavailableError, True),
    (500, KubeUnavailableError, True),
    (503, KubeUnavailableError, True),
    (504, KubeUnavailableError, True),
]


@pytest.mark.parametrize(("status", "cls", "retriable"), STATUSES)
def test_of_each_status(status: int, cls: type[KubeError], retriable: bool) -> None:
    body = json.dumps({"kind": "Status", "message": "what is wrong", "reason": "Word"}).encode()
    error = error_of(status, body, "PUT /x")
    assert type(error) is cls
    assert error.retriable is retriable
    assert (error.status, error.reason, str(error)) == (status, "Word", "PUT /x: what is wrong")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"message": ""}'])
def test_without_a_message_the_status_is_told(body: bytes) -> None:
    assert str(error_of(503, body, "GET /x")) == "GET /x: HTTP 503"


def test_an_answer_that_is_not_json_is_told_in_part() -> None:
    error = error_of(502, b"<html>\xff" + b"x" * 10_000, "GET /x")
    assert type(error) is KubeUnavailableError
    assert "<html>" in str(error)
    assert len(str(error)) < 300


def test_a_patch_under_another_uid_is_a_conflict() -> None:
    """The API server calls the object invalid; it is only that another one has its name by now."""
    causes = [{"field": "metadata.uid", "reason": "FieldValueInvalid", "message": "field is immutable"}]
    body = json.dumps({"message": "it is invalid", "reason": "Invalid", "details": {"causes": causes}})
    error = error_of(422, body.encode(), "PATCH /x")
    assert type(error) is KubeConflictError
    assert error.retriable
