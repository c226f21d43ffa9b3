"""docs/weaknesses-of-0.13.2.md and docs/safety.md name tests; those tests exist, and nothing is left out."""

import ast
import re
from functools import cache

import pytest

from tests.repo.files import ROOT, text_files

COMPATIBILITY = ROOT / "docs" / "compatibility.md"
WEAKNESSES = ROOT / "docs" / "weaknesses-of-0.13.2.md"
SAFETY = ROOT / "docs" / "safety.md"
TESTING = ROOT / "docs" / "testing.md"

SECTIONS = {"13": ("client_server_13", 41), "7": ("storage_7", 31), "6": ("zookeeper_6", 26)}
STATES = {"mended", "between ours", "impossible", "later"}
ROW = re.compile(r"^\| (13|7|6)\.(\d+) \| (.+?) \| ([\w ]+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
NAME = re.compile(r"`(test_\w+)`")

UNTRIED: set[str] = set()
"""Weaknesses of parts that are not built: there is nothing a test could call."""


@cache
def all_test_names() -> frozenset[str]:
    names = (
        re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
        for path in text_files(".py")
    )
    return frozenset(name for found in names for name in found)


@cache
def quick_test_names() -> frozenset[str]:
    """Those that `make test` runs: without the mark `long`, of their own or of their file."""
    names: set[str] = set()
    for path in text_files(".py"):
        if not path.name.startswith("test_"):
            continue
        tree = ast.parse(path.read_text())
        if any("mark.long" in ast.unparse(one) for one in tree.body if isinstance(one, ast.Assign)):
            continue
        names |= {
            one.name
            for one in ast.walk(tree)
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            and "pytest.mark.long" not in [ast.unparse(decorator) for decorator in one.decorator_list]
        }
    return frozenset(names)


def rows() -> list[tuple[str, str, str]]:
    """(number, state, tests) of each line of the catalogue."""
    return [
        (f"{section}.{number}", state, tests)
        for section, number, _, state, _, tests in ROW.findall(WEAKNESSES.read_text())
    ]


def safety_rules() -> list[str]:
    return re.findall(r"^\| ([A-G]\d+) \|", SAFETY.read_text(), re.MULTILINE)


@pytest.mark.parametrize("document", [COMPATIBILITY, WEAKNESSES, TESTING], ids=lambda path: path.name)
def test_named_tests_exist(document) -> None:  # type: ignore[no-untyped-def]
    named = set(NAME.findall(document.read_text()))
    assert len(named) > 10
    assert not sorted(named - all_test_names())


def test_safety_f4_the_catalogue_is_complete() -> None:
    """Each weakness is listed once, in order, with a state; without a test only what is not built."""
    catalogue = rows()
    assert [number for number, _, _ in catalogue] == [
        f"{section}.{n}" for section, (_, count) in SECTIONS.items() for n in range(1, count + 1)
    ]
    assert {state for _, state, _ in catalogue} <= STATES
    assert {number for number, _, tests in catalogue if not NAME.findall(tests)} == UNTRIED
    assert all(state == "later" for number, state, _ in catalogue if number in UNTRIED)


def test_each_weakness_has_a_test_of_its_number() -> None:
    """`test_storage_7_05_...`, named on the line of the weakness; `test_client_server_13_34_and_39_...`
    carries two."""
    missing = []
    for number, _, tests in rows():
        section, _, place = number.partition(".")
        carried = re.compile(rf"test_{SECTIONS[section][0]}_(?:\d\d_and_)?{int(place):02}_")
        if number not in UNTRIED and not any(carried.match(name) for name in NAME.findall(tests)):
            missing.append(number)
    assert not missing


@pytest.mark.parametrize("rule", safety_rules())
def test_every_safety_rule_has_tests_that_make_test_runs(rule: str) -> None:
    assert [name for name in quick_test_names() if name.startswith(f"test_safety_{rule.lower()}_")]


def test_every_weakness_is_touched_by_make_test() -> None:
    named = {number: NAME.findall(tests) for number, _, tests in rows() if number not in UNTRIED}
    assert not [number for number, tests in named.items() if not quick_test_names() & set(tests)]


def test_all_safety_rules_are_found() -> None:
    counts = {letter: sum(rule[0] == letter for rule in safety_rules()) for letter in "ABCDEF"}
    assert counts == {"A": 8, "B": 4, "C": 7, "D": 12, "E": 8, "F": 5}
