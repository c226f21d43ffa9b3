"""Structural OpenAPI schemas, as CustomResourceDefinitions want them, from the models. Pure.

Differences to the JSON schema of pydantic: nothing is referenced, optional is not null but absent, no titles,
and no `additionalProperties: false` (the API server drops or refuses unknown fields on its own). Defaults of
the specification are the API server's defaults too and end the description of their field.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from waltz_operator.api.base import StatusModel

Schema = dict[str, Any]
_DROPPED = ("title", "default")
_RULES = "x-kubernetes-validations"
_INT_OR_STRING = "x-kubernetes-int-or-string"


def structural(model: type[BaseModel], description: str) -> Schema:
    """Schema of an object; `description` is its own."""
    whole = model.model_json_schema(by_alias=True)
    definitions = whole.pop("$defs", {})
    schema = _plain(whole, definitions)
    _with_defaults(schema, model)
    return {**schema, "description": description}


def _plain(schema: Schema, definitions: Schema) -> Schema:
    """References written out, everything that is not structural left out."""
    schema = dict(schema)
    if "$ref" in schema:
        target = definitions[schema.pop("$ref").rpartition("/")[2]]
        rules = [*target.get(_RULES, ()), *schema.get(_RULES, ())]
        schema = {**target, **schema, **({_RULES: rules} if rules else {})}
        return _plain(schema, definitions)
    variants = [part for part in schema.pop("anyOf", ()) if part.get("type") != "null"]
    if len(variants) == 1:
        schema = {**_plain(variants[0], definitions), **schema}
    for name in _DROPPED:
        schema.pop(name, None)
    if schema.pop(_INT_OR_STRING, False):
        schema.pop("type", None)
        schema = {"anyOf": [{"type": "integer"}, {"type": "string"}], _INT_OR_STRING: True, **schema}
    if "properties" in schema:
        schema["properties"] = {
            name: _plain(found, definitions) for name, found in schema["properties"].items()
        }
        schema.pop("additionalProperties", None)
    elif isinstance(schema.get("additionalProperties"), dict):
        schema["additionalProperties"] = _plain(schema["additionalProperties"], definitions)
    else:
        schema.pop("additionalProperties", None)
    if "items" in schema:
        schema["items"] = _plain(schema["items"], definitions)
    return schema


def _with_defaults(schema: Schema, model: type[BaseModel]) -> None:
    """Put in the defaults, here and in all models below, and say them in the descriptions."""
    for field in model.model_fields.values():
        inner = schema["properties"][field.alias]
        below = _model_in(field.annotation)
        if below is not None:
            _with_defaults(inner.get("items", inner) if inner["type"] == "array" else inner, below)
        if issubclass(model, StatusModel) or field.is_required():
            continue
        value = _default(field)
        if value is None:
            continue
        if value or not isinstance(value, list | dict) or _is_model(field.annotation):
            inner["default"] = value
        if value != {} and value != []:
            inner["description"] = f"{inner['description']} Default: {_shown(value)}."


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return list(value) if isinstance(value, tuple) else getattr(value, "value", value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, be it optional or in a list."""
    if _is_model(annotation):
        return annotation  # type: ignore[no-any-return]
    for part in getattr(annotation, "__args__", ()):
        found = _model_in(part)
        if found is not None:
            return found
    return None
