"""docs/compatibility.md and docs/safety.md name tests; those tests exist, and nothing is left out."""

import re
from functools import cache

import pytest

from tests.repo.files import ROOT, text_files

COMPATIBILITY = ROOT / "docs" / "compatibility.md"
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


def rows() -> list[tuple[str, str, str]]:
    """(number, state, tests) of each line of the catalogue."""
    return [
        (f"{section}.{number}", state, tests)
        for section, number, _, state, _, tests in ROW.findall(COMPATIBILITY.read_text())
    ]


def safety_rules() -> list[str]:
    return re.findall(r"^\| ([A-F]\d+) \|", SAFETY.read_text(), re.MULTILINE)


@pytest.mark.parametrize("document", [COMPATIBILITY, TESTING], ids=lambda path: path.name)
def test_named_tests_exist(document) -> None:  # type: ignore[no-untyped-def]
    named = set(NAME.findall(document.read_text()))
    assert len(named) > 20
    assert not sorted(named - all_test_names())


def test_safety_f4_the_catalogue_is_complete() -> None:
    """Each weakness stands there once, in order, with a state; without a test only what is not built."""
    catalogue = rows()
    assert [number for number, _, _ in catalogue] == [
        f"{section}.{n}" for section, (_, count) in SECTIONS.items() for n in range(1, count + 1)
    ]
    assert {state for _, state, _ in catalogue} <= STATES
    assert {number for number, _, tests in catalogue if not NAME.findall(tests)} == UNTRIED
    assert all(state == "later" for number, state, _ in catalogue if number in UNTRIED)


def test_each_weakness_has_a_test_of_its_number() -> None:
    """`test_storage_7_05_...`, named on the line of the weakness; `test_client_server_13_34_and_39_...` carries two."""
    missing = []
    for number, _, tests in rows():
        section, _, place = number.partition(".")
        carried = re.compile(rf"test_{SECTIONS[section][0]}_(?:\d\d_and_)?{int(place):02}_")
        if number not in UNTRIED and not any(carried.match(name) for name in NAME.findall(tests)):
            missing.append(number)
    assert not missing


@pytest.mark.parametrize("rule", safety_rules())
def test_every_safety_rule_has_tests(rule: str) -> None:
    assert [name for name in all_test_names() if name.startswith(f"test_safety_{rule.lower()}_")]


def test_all_safety_rules_are_found() -> None:
    counts = {letter: sum(rule[0] == letter for rule in safety_rules()) for letter in "ABCDEF"}
    assert counts == {"A": 8, "B": 4, "C": 6, "D": 10, "E": 5, "F": 5}
