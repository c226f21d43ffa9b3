"""What all models share: names as Kubernetes writes them, and the scalar types with their schema.

Every field has a description that ends with its default, and names its unit; the CRD and
docs/operator-fields.md show it. A rule of the API server (CEL) is defined with the model or field it
guards, as `rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_QUANTITY = 20
MAX_NODE_NAME = 6
"""Of a group or a node: with 30 characters for the cluster a StatefulSet's name keeps within 52, so that
Kubernetes can put a revision hash behind it in a label."""
MAX_CLUSTER_NAME = 30


class Model(BaseModel):
    """Immutable, camelCase outside, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class StatusModel(BaseModel):
    """Immutable, camelCase outside; unknown fields are left alone, since another version of the operator may
    have written them."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


def rule(cel: str, message: str, field: str | None = None) -> dict[str, str]:
    """One CEL rule of the API server; `field` says which field the message is about."""
    made = {"rule": cel, "message": message}
    if field is not None:
        made["fieldPath"] = f".{field}"
    return made


def ratcheted(cel: str, unchanged: str, message: str, field: str | None = None) -> dict[str, Any]:
    """A rule of fields that have no parent in common but the whole specification. `unchanged`: CEL, whether
    all that the rule reads is as in `oldSelf.value()`. What was stored before the rule can be changed
    elsewhere: on its own the API server permits that only where the whole of what has the rule is
    unchanged."""
    return {**rule(f"{cel} || oldSelf.hasValue() && {unchanged}", message, field), "optionalOldSelf": True}


def rules(*found: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Extra schema for a field or model: CEL rules and whatever else `more` says."""
    return {"x-kubernetes-validations": [dict(one) for one in found], **more}


def immutable(what: str) -> dict[str, Any]:
    """Extra schema for a field that keeps its first value."""
    return rules(rule("self == oldSelf", f"{what} is fixed when it is first set"))


def list_map(*keys: str, **more: Any) -> dict[str, Any]:
    """Extra schema for a list whose entries are distinguished by `keys`."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys), **more}


LIST_SET: dict[str, Any] = {"x-kubernetes-list-type": "set"}

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"


def _text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


SizeQuantity = Annotated[
    str, Field(pattern=r"^[1-9][0-9]*(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$", max_length=MAX_QUANTITY)
]
"""Bytes as Kubernetes writes them (`10Gi`)."""

ResourceQuantity = Annotated[
    # the pattern first: pydantic does not show one that comes after a validator in the schema
    Annotated[str, Field(pattern=QUANTITY_PATTERN, json_schema_extra={"x-kubernetes-int-or-string": True})],
    BeforeValidator(_text),
]
"""A number or a quantity (`2`, `500m`, `1Gi`)."""

NodeName = Annotated[str, Field(pattern=r"^[a-z0-9]+$", min_length=1, max_length=MAX_NODE_NAME)]
"""Of a group or of a node in a group."""

NodeReference = Annotated[
    str, Field(pattern=r"^[a-z0-9]{1,6}-[a-z0-9]{1,6}$", max_length=2 * MAX_NODE_NAME + 1)
]
"""A storage node: its group's name, a dash, its own name (`1-0`)."""

ResourceName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)
]
"""Name of another Kubernetes object."""

Labels = dict[str, str]

FreeForm = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""A piece of a Kubernetes object whose schema is Kubernetes' own."""


def joined(names: Sequence[object]) -> str:
    """Names for a message."""
    return ", ".join(str(name) for name in names)


_MULTIPLES = {
    "": 1, "m": 0.001, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


def quantity_bytes(text: str) -> int:
    """`10Gi` as a number (bytes for sizes), rounded up; ValueError for what is no quantity."""
    digits = text.rstrip("mkMGTPEi")
    unit = text[len(digits) :]
    if unit not in _MULTIPLES or not digits:
        raise ValueError(f"{text!r} is not a quantity such as 10Gi")
    exact = (
        float(digits) * _MULTIPLES[unit]
        if "." in digits or unit == "m"
        else int(digits) * int(_MULTIPLES[unit])
    )
    whole = int(exact)
    return whole if whole == exact else whole + 1
