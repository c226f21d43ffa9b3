"""Objects as the API server (or a file) shows them, read into the models."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from waltz_operator.api.cluster import WaltzCluster, WaltzClusterSpec, WaltzClusterStatus
from waltz_operator.api.errors import ResourceError
from waltz_operator.api.metadata import API_VERSIONS, ObjectMeta
from waltz_operator.api.migration import WaltzMigration, WaltzMigrationSpec, WaltzMigrationStatus

M = TypeVar("M", bound=BaseModel)

_GUARDING = frozenset({"clusterKey", "operation"})
"""Fields of a cluster's status that a pass reads back to guard data."""


def parse_cluster(body: Mapping[str, Any]) -> WaltzCluster:
    """Read a WaltzCluster that a person wrote. ResourceError names the first field that is wrong."""
    return _cluster(body, None)


def parse_migration(body: Mapping[str, Any]) -> WaltzMigration:
    """Read a WaltzMigration that a person wrote. ResourceError names the first field that is wrong."""
    return _migration(body, None)


def stored_cluster(body: Mapping[str, Any]) -> WaltzCluster:
    """Read a WaltzCluster that the API server has stored: its definition may be of another version of the
    operator. Fields of the specification that this one does not know are `unknown`, and stay in the object,
    since nothing but its status and finalizers is ever written. Of the status, which is ours, what cannot be
    read is seen as absent; but for the key and the change in progress, which guard data. ResourceError."""
    status = body.get("status")
    if isinstance(status, Mapping):
        body = {**body, "status": _readable_part(status)}
    unknown: list[str] = []
    return _cluster(body, unknown)._replace(unknown=_shallow_first(unknown))


def stored_migration(body: Mapping[str, Any]) -> WaltzMigration:
    """Read a WaltzMigration in the same way; of its status all is needed. ResourceError."""
    unknown: list[str] = []
    return _migration(body, unknown)._replace(unknown=_shallow_first(unknown))


def _shallow_first(paths: list[str]) -> tuple[str, ...]:
    return tuple(sorted(paths, key=lambda path: (path.count("."), path)))


def _cluster(body: Mapping[str, Any], unknown: list[str] | None) -> WaltzCluster:
    _check_kind(body, "WaltzCluster")
    return WaltzCluster(
        _read(ObjectMeta, body, "metadata"),
        _read(WaltzClusterSpec, body, "spec", unknown),
        _read(WaltzClusterStatus, body, "status"),
    )


def _migration(body: Mapping[str, Any], unknown: list[str] | None) -> WaltzMigration:
    _check_kind(body, "WaltzMigration")
    return WaltzMigration(
        _read(ObjectMeta, body, "metadata"),
        _read(WaltzMigrationSpec, body, "spec", unknown),
        _read(WaltzMigrationStatus, body, "status"),
    )


def _readable_part(status: Mapping[str, Any]) -> dict[str, Any]:
    """A cluster's status without the fields that cannot be read and that are made anew in each pass."""
    try:
        WaltzClusterStatus.model_validate(dict(status))
    except ValidationError as error:
        wrong = {str(one["loc"][0]) for one in error.errors(include_url=False)} - _GUARDING
        return {name: value for name, value in status.items() if name not in wrong}
    return dict(status)


def status_body(status: WaltzClusterStatus | WaltzMigrationStatus) -> dict[str, Any]:
    """A status as the API server takes it: camelCase, without what is not known."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _check_kind(body: Mapping[str, Any], kind: str) -> None:
    for field, allowed in (("apiVersion", API_VERSIONS), ("kind", (kind,))):
        if body.get(field) not in allowed:
            raise ResourceError(field, f"must be {' or '.join(allowed)}, not {body.get(field)!r}")


def _read(model: type[M], body: Mapping[str, Any], part: str, unknown: list[str] | None = None) -> M:
    """`unknown`: filled with the fields that the model does not have; without it they are refused."""
    value = body.get(part)
    if value is None:
        value = {}
    elif not isinstance(value, Mapping):
        raise ResourceError(part, "must be an object")
    value = dict(value)
    while True:
        try:
            return model.model_validate(value)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        surplus = [one["loc"] for one in errors if one["type"] == "extra_forbidden"]
        if unknown is None or not surplus:
            raise _resource_error(part, errors[0])
        value = copy.deepcopy(value)
        for location in surplus:
            unknown.append(_dotted(part, location))
            _remove(value, location)


def _remove(value: Any, location: tuple[int | str, ...]) -> None:
    for step in location[:-1]:
        value = value[step]
    del value[location[-1]]


def _dotted(part: str, location: tuple[int | str, ...]) -> str:
    return ".".join((part, *(str(step) for step in location)))


def _resource_error(part: str, error: Mapping[str, Any]) -> ResourceError:
    path = _dotted(part, error["loc"])
    if error["type"] == "missing":
        return ResourceError(path, "is required")
    if error["type"] == "extra_forbidden":
        return ResourceError(path, "is not a field of this version")
    return ResourceError(path, str(error["msg"]).removeprefix("Value error, "))
