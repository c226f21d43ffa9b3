"""`crds/*.yaml` are made from the models (WALTZ_WRITE_DOCS=1 writes them) and are what the API server wants
of a schema."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from waltz_operator.api.crd import DEFINITIONS

ROOT = Path(__file__).resolve().parents[4]
CRDS = ROOT / "crds"
HEAD = "# Made from the models in operator/src/waltz_operator/api; WALTZ_WRITE_DOCS=1 .venv/bin/pytest operator/tests/operator_tests/api writes it again.\n"
Schema = dict[str, Any]


def rendered(name: str) -> str:
    return HEAD + yaml.safe_dump(DEFINITIONS[name](), sort_keys=False, width=150, allow_unicode=True)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_all_versions_are_one_and_one_is_stored(name: str) -> None:
    """What ADR 21 depends on: nothing is converted but the name."""
    spec = DEFINITIONS[name]()["spec"]
    versions = [dict(version) for version in spec["versions"]]
    assert [version.pop("name") for version in versions] == ["v1alpha1", "v1beta1"]
    assert [version.pop("storage") for version in versions] == [True, False]
    assert versions[0] == versions[1]
    assert spec["conversion"] == {"strategy": "None"}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_file_is_up_to_date(name: str) -> None:
    path = CRDS / name
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        CRDS.mkdir(exist_ok=True)
        path.write_text(rendered(name))
    assert path.read_text() == rendered(name), "run with WALTZ_WRITE_DOCS=1 to write it"


def test_there_are_no_other_files() -> None:
    assert {found.name for found in CRDS.iterdir()} == {*DEFINITIONS, "kustomization.yaml"}


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field below, with its path; without those of Kubernetes' own objects that rules need."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        yield where, inner
        yield from fields(inner.get("items", inner), where)


def root(name: str) -> Schema:
    version = DEFINITIONS[name]()["spec"]["versions"][0]
    found: Schema = version["schema"]["openAPIV3Schema"]
    return found


def every_field() -> Iterator[tuple[str, str, Schema]]:
    for name in DEFINITIONS:
        for path, schema in fields(root(name)):
            if path not in ("metadata",):
                yield name, path, schema


UNITS = (
    "second", "minute", "hour", "byte", "number", "id ", "ids ", "port", "core", "percent", "transactions",
)  # fmt: skip


def test_every_field_says_what_it_is_its_default_and_its_unit() -> None:
    seen = 0
    for name, path, schema in every_field():
        where = f"{name} {path}"
        text = schema.get("description", "")
        assert text.rstrip().endswith((".", "…")), f"{where} has no description"
        seen += 1
        if schema.get("type") in ("integer", "number"):
            assert any(unit in text.lower() for unit in UNITS), f"{where} has no unit: {text}"
        if "default" in schema and schema["default"] != {}:
            assert "Default: " in text, f"{where} does not say its default"
    assert seen > 120


def test_optional_fields_of_the_specification_say_their_default() -> None:
    for name in DEFINITIONS:
        spec = root(name)["properties"]["spec"]

        def visit(schema: Schema, path: str) -> None:
            if schema.get("x-kubernetes-preserve-unknown-fields"):
                return
            for field, inner in schema.get("properties", {}).items():
                where = f"{path}.{field}"
                if field not in schema.get("required", ()):
                    said = "Default: " in inner["description"]
                    empty = inner.get("type") in (
                        "object",
                        "array",
                    )  # by default nothing, or all defaults below
                    assert said or empty, f"{where} does not say what it is by default"
                visit(inner.get("items", inner), where)

        visit(spec, "spec")


FORBIDDEN = {
    "$ref",
    "title",
    "definitions",
    "const",
    "prefixItems",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "oneOf",
    "allOf",
    "not",
}


def test_the_schemas_are_structural() -> None:
    """Every node has a type (or is int-or-string, or free), and none of what the API server refuses."""

    def visit(schema: Schema, where: str) -> None:
        assert not FORBIDDEN & schema.keys(), where
        free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
        assert "type" in schema or free, f"{where} has no type"
        if "anyOf" in schema:
            assert schema.get("x-kubernetes-int-or-string"), where
        assert not ("properties" in schema and "additionalProperties" in schema), where
        if schema.get("type") == "array":
            assert "items" in schema, where
        if "x-kubernetes-list-map-keys" in schema:
            inner = schema["items"]
            for key in schema["x-kubernetes-list-map-keys"]:
                assert key in inner["required"], f"{where}: {key} must be there"
        for name, inner in schema.get("properties", {}).items():
            visit(inner, f"{where}.{name}")
        for name in ("items", "additionalProperties"):
            if name in schema:
                visit(schema[name], f"{where}.{name}")

    for name in DEFINITIONS:
        schema = root(name)
        assert schema["properties"]["metadata"] == {"type": "object"}
        visit(schema, name)


def test_rules_name_fields_that_exist() -> None:
    """fieldPath of a CEL rule must be a field of the schema it stands with."""
    found = 0
    for name in DEFINITIONS:
        for path, schema in [("", root(name)), *fields(root(name))]:
            for target in (schema, schema.get("items", {})):
                for rule in target.get("x-kubernetes-validations", ()):
                    found += 1
                    assert rule["message"], path
                    if "fieldPath" in rule:
                        inner = target
                        for part in rule["fieldPath"][1:].split("."):
                            assert part in inner["properties"], f"{path} {rule}"
                            inner = inner["properties"][part]
    assert found >= 25


def test_columns_short_names_and_subresources() -> None:
    cluster = DEFINITIONS["waltzclusters.waltz.dev.yaml"]()["spec"]
    shown = [
        column["name"]
        for column in cluster["versions"][0]["additionalPrinterColumns"]
        if not column.get("priority")
    ]
    assert shown == ["Ready", "Partitions", "Replicas", "Servers", "Version", "Reason", "Age"]
    assert cluster["names"]["shortNames"] == ["wc"]
    assert cluster["versions"][0]["subresources"].keys() == {"status", "scale"}
    migration = DEFINITIONS["waltzmigrations.waltz.dev.yaml"]()["spec"]
    assert migration["names"]["shortNames"] == ["wm"]
    assert migration["versions"][0]["subresources"] == {"status": {}}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_columns_and_scale_point_at_fields(name: str) -> None:
    paths = {path for path, _ in fields(root(name))} | {"metadata.creationTimestamp"}
    version = DEFINITIONS[name]()["spec"]["versions"][0]
    for column in version["additionalPrinterColumns"]:
        assert column["jsonPath"].partition("[")[0][1:] in paths, column
    for path in version["subresources"].get("scale", {}).values():
        assert path[1:] in paths
