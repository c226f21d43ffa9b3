"""docs/spark.md names every option, and tests that exist."""

import re
from pathlib import Path

from waltz_spark.options import READ_TABLE

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "spark.md").read_text()
OPTIONS = TEXT.split("### Options", 1)[1].split("### ", 1)[0]


def test_every_option_of_a_read_is_explained() -> None:
    assert [option.name for option in READ_TABLE if f"`{option.name}`" not in TEXT] == []


def test_defaults_in_the_document_are_those_of_the_code() -> None:
    shown = {
        name: default.strip().strip("`")
        for names, default in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", OPTIONS, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    plain = {o.name: o.default for o in READ_TABLE if isinstance(o.default, bool | str)}
    assert {name: shown[name] for name in plain} == {n: str(d).lower() for n, d in plain.items()}


def test_the_tests_it_names_exist() -> None:
    sources = [
        path.read_text()
        for folder in ("spark-on-k8s/tests", "client/tests")
        for path in (ROOT / folder).rglob("test_*.py")
    ]
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 20
    assert sorted(name for name in named if not any(f"def {name}(" in source for source in sources)) == []


def test_every_habit_of_the_kafka_source_and_sink_has_a_test_or_a_reason_why_there_is_none() -> None:
    tables = re.findall(r"^\| Kafka (?:source|sink) \|.*\n\| ---.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")] for table in tables for row in table.splitlines()
    ]
    assert len(tables) == 2
    assert len(rows) > 30
    assert [
        row for row in rows if "`test_" not in row[-1] and not row[1].startswith(("none", "cannot happen"))
    ] == []
