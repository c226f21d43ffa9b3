"""Objects as the API server (or a file) shows them, read into the models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from waltz_operator.api.cluster import WaltzCluster, WaltzClusterSpec, WaltzClusterStatus
from waltz_operator.api.errors import ResourceError
from waltz_operator.api.metadata import API_VERSION, ObjectMeta
from waltz_operator.api.migration import WaltzMigration, WaltzMigrationSpec, WaltzMigrationStatus

M = TypeVar("M", bound=BaseModel)


def parse_cluster(body: Mapping[str, Any]) -> WaltzCluster:
    """Read a WaltzCluster. ResourceError names the first field that is wrong."""
    _check_kind(body, "WaltzCluster")
    return WaltzCluster(
        _read(ObjectMeta, body, "metadata"),
        _read(WaltzClusterSpec, body, "spec"),
        _read(WaltzClusterStatus, body, "status"),
    )


def parse_migration(body: Mapping[str, Any]) -> WaltzMigration:
    """Read a WaltzMigration. ResourceError names the first field that is wrong."""
    _check_kind(body, "WaltzMigration")
    return WaltzMigration(
        _read(ObjectMeta, body, "metadata"),
        _read(WaltzMigrationSpec, body, "spec"),
        _read(WaltzMigrationStatus, body, "status"),
    )


def status_body(status: WaltzClusterStatus | WaltzMigrationStatus) -> dict[str, Any]:
    """A status as the API server takes it: camelCase, without what is not known."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _check_kind(body: Mapping[str, Any], kind: str) -> None:
    for field, wanted in (("apiVersion", API_VERSION), ("kind", kind)):
        if body.get(field) != wanted:
            raise ResourceError(field, f"must be {wanted}, not {body.get(field)!r}")


def _read(model: type[M], body: Mapping[str, Any], part: str) -> M:
    value = body.get(part)
    if value is None:
        value = {}
    elif not isinstance(value, Mapping):
        raise ResourceError(part, "must be an object")
    try:
        return model.model_validate(dict(value))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join((part, *(str(step) for step in first["loc"])))
        if first["type"] == "missing":
            raise ResourceError(path, "is required") from None
        if first["type"] == "extra_forbidden":
            raise ResourceError(path, "is not a field of this version") from None
        raise ResourceError(path, str(first["msg"]).removeprefix("Value error, ")) from None
