"""The pages of the operator: the field tables are made from the definitions (WALTZ_WRITE_DOCS=1 writes them);
names in the others exist."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from waltz_operator.api.cluster_status import ConditionType
from waltz_operator.api.crd import cluster_definition, migration_definition
from waltz_operator.api.migration import MoveState
from waltz_operator.model.reasons import Reason

ROOT = Path(__file__).resolve().parents[4]
DOCS = ROOT / "docs"
FIELDS = DOCS / "operator-fields.md"
DEFINITIONS = {"WaltzCluster": cluster_definition, "WaltzMigration": migration_definition}
PARTS = [(kind, part) for kind in DEFINITIONS for part in ("spec", "status")]
Schema = dict[str, Any]


def root(kind: str, part: str) -> Schema:
    version = DEFINITIONS[kind]()["spec"]["versions"][0]
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def fields(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """(path, schema, required) of every field; `[]` behind a list. Kubernetes' own objects have their own
    documents."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        yield where, inner, name in schema.get("required", ())
        is_list = inner.get("type") == "array"
        yield from fields(inner.get("items", {}) if is_list else inner, f"{where}[]" if is_list else where)


NUMBERS = {"minimum": "≥ {}", "maximum": "≤ {}"}


def value_of(schema: Schema) -> str:
    """What a value must be."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        inner = schema["items"]
        return "list" if "properties" in inner else f"list of {value_of(inner)}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        if inner is not None:
            return "map of quantities" if "anyOf" in inner else "map"
        return "object"
    words = {"string": "text", "integer": "integer", "boolean": "true or false", "number": "number"}
    limits = [text.format(schema[name]) for name, text in NUMBERS.items() if name in schema]
    if schema.get("format") == "date-time":
        return "time"
    return ", ".join([words[schema["type"]], *limits])


def escaped(text: str) -> str:
    """As it may stand in a cell."""
    return text.replace("|", "\\|").replace("<", "\\<")


def row(path: str, schema: Schema, required: bool, part: str) -> str:
    meaning, _, default = schema["description"].partition(" Default: ")
    default = escaped(default.removesuffix("."))
    rules = schema.get("x-kubernetes-validations", ())
    cells = [f"`{path}`", value_of(schema)]
    if part == "spec":
        cells.append("required" if required else default)
    elif default:
        meaning += f" Absent: {default}."
    if any(rule["rule"] == "self == oldSelf" for rule in rules) and "fixed" not in meaning.lower():
        meaning += " Fixed when it is first set."
    return f"| {' | '.join([*cells, escaped(meaning)])} |"


def table(kind: str, part: str) -> str:
    head = ["field", "value", "default", "meaning"] if part == "spec" else ["field", "value", "meaning"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return "\n".join([*lines, *(row(*field, part) for field in fields(root(kind, part)))])


def rendered(text: str) -> str:
    """The document with its tables made again."""
    for kind, part in PARTS:
        mark = f"<!-- made from the code: {kind} {part} -->\n"
        before, found, after = text.partition(mark)
        assert found, mark
        rest = re.sub(r"\A\n?(\|.*\n)*", "", after)
        gap = "" if not rest or rest.startswith("\n") else "\n"
        text = f"{before}{mark}\n{table(kind, part)}\n{gap}{rest}"
    return text


def test_the_tables_are_what_the_definitions_say() -> None:
    text = FIELDS.read_text()
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        FIELDS.write_text(rendered(text))
        text = FIELDS.read_text()
    assert text == rendered(text), "run with WALTZ_WRITE_DOCS=1 to write it"


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_no_field_is_missing(kind: str, part: str) -> None:
    text = FIELDS.read_text()
    for path, _, _ in fields(root(kind, part)):
        assert f"| `{path}` |" in text


def section(page: str, title: str) -> str:
    """The text below a heading, up to the next one of any level."""
    text = (DOCS / page).read_text()
    found = re.search(rf"^#+ {title}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def test_every_condition_and_reason_is_explained_and_no_other() -> None:
    conditions = set(re.findall(r"^\| `(\w+)` \|", section("operator-alerts.md", "Conditions"), re.MULTILINE))
    assert conditions == {found.value for found in ConditionType}
    reasons = set(re.findall(r"^\| `(\w+)` \|", section("operator-alerts.md", "Reasons"), re.MULTILINE))
    assert reasons == {found.value for found in Reason}


def test_the_steps_of_a_migration_are_explained() -> None:
    steps = section("operator-decisions.md", "The steps of a migration")
    named = set(re.findall(r"`([A-Z]\w+)`", steps.split("| state |")[1].split("\n\n")[0]))
    assert named == {state.value for state in MoveState} - {"Pending", "Cancelled", "Failed"}


def test_every_example_is_listed_and_no_other() -> None:
    listed = set(re.findall(r"`([\w-]+\.yaml)`", section("operator.md", "What there is an example of")))
    assert listed == {path.name for path in (ROOT / "manifests/examples").glob("*.yaml")}
