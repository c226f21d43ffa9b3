"""docs/operator-features.md: each row has a judgement and proofs, the proofs exist, and what is not as good
as elsewhere is argued in a record of docs/adr."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.scenarios import ALL
from tests.repo.files import ROOT

PAGE = ROOT / "docs" / "operator-features.md"
TESTS = ROOT / "operator" / "tests" / "operator_tests"
JUDGEMENTS = {"above", "as", "below", "left out"}
ARGUED = {"below", "left out"}
FEWEST_ROWS = 44
"""As many as were compared: 39 features and 5 levels."""
FEWEST_ATTACKS = 26
TEST = re.compile(r"`([\w/.-]+\.py)::(\w+)`")
SCENARIO = re.compile(r"scenario \*([^*]+)\*( \(long\))?")


class Row(NamedTuple):
    feature: str
    best: str
    judgement: str
    here: str
    proofs: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] not in ("feature", "---"):
            found.append(Row(*cells))
    return found


@cache
def functions(path: Path) -> frozenset[str]:
    """Names of the tests in a file."""
    return frozenset(
        one.name
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_every_feature_that_was_compared_is_a_row() -> None:
    names = [row.feature for row in rows()]
    assert len(names) == len(set(names)) >= FEWEST_ROWS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.feature)
def test_a_row_is_judged_and_proven(row: Row) -> None:
    assert row.judgement.strip("*") in JUDGEMENTS
    if row.judgement in ARGUED:
        records = re.findall(r"ADR (\d+)", row.here)
        assert records, "what is not as good as elsewhere is argued in a record"
        assert all(list((ROOT / "docs/adr").glob(f"{int(number):04}-*.md")) for number in records)
    tests, scenarios = TEST.findall(row.proofs), SCENARIO.findall(row.proofs)
    assert tests or scenarios, "no proof is named"
    assert row.proofs.count("`") == 2 * len(tests), "something in back-quotes is not a test"
    assert row.proofs.count("scenario") == len(scenarios)
    for file, name in tests:
        path = ROOT / file if (ROOT / file).exists() else TESTS / file
        assert name in functions(path), f"{file} has no {name}"
    check_scenarios(scenarios)


def check_scenarios(named: list[tuple[str, str]]) -> None:
    known = {scenario.name: scenario.long for scenario in ALL}
    for name, long in named:
        assert known.get(name) is bool(long), f"scenario {name}: {known.get(name)}"


def test_the_attacks_of_the_testing_page_are_scenarios() -> None:
    page = (ROOT / "docs/testing.md").read_text()
    text = page.split("## Attacks on Kubernetes\n")[1].split("\n## ")[0].replace("\n", " ")
    named = SCENARIO.findall(text)
    check_scenarios(named)
    assert len(named) == text.count("scenario *"), "one of them was not read"
    assert len(named) >= FEWEST_ATTACKS
