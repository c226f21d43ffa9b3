"""Rules that are defined once, and numbers of rules that exist."""

import re

import pytest

from tests.repo.files import ROOT, text_files
from tests.repo.import_graph import modules

MAJORITY = "libs/cluster/src/waltz_cluster/quorum.py"
RULES = "libs/cluster/src/waltz_cluster/replica_rules.py"
NEAREST_NAME = "libs/cluster/src/waltz_cluster/config/unknown_keys.py"
PARTS_OF_A_RULE = {
    "a replica takes part": (
        r"\.resolved (or|and)\b|\bsession_id [!=]= (\w+\.)*(metadata|state|record)\.session_id",
        {RULES},
    ),
    "a change is complete": (
        r"\b(set|sorted)\((\w+\.)*replicas\) [!=]=|[!=]= (set|sorted)\((\w+\.)*replicas\)",
        {RULES},
    ),
    "the record at the mark is there": (
        r"\.holds_low_water_mark",
        # The operator passes the answer on; who gives a replica up wants to know that the others could say
        # it.
        {RULES, "operator/src/waltz_operator/model/facts.py", "libs/admin/src/waltz_admin/forget.py"},
    ),
    "an answer is fresh": (r"FRESH_SECONDS", {RULES}),
    "as many as a quorum": (
        r"len\(\w+\) >= (needed|quorum_of\()",
        # Other questions with a quorum in them: do more than those of the last session hold more (A8), what a
        # partition waits for, and are enough copies near enough for a restart of one more node.
        {
            RULES,
            "libs/admin/src/waltz_admin/restored_metadata.py",
            "libs/admin/src/waltz_admin/status.py",
            "operator/src/waltz_operator/plan/safety_gates.py",
        },
    ),
}
"""What a second definition of a rule about copies could not do without, and where it may be written."""
PROTOCOL = "libs/protocol/src/waltz_protocol/"
PARTS_OF_THE_WIRE = {
    "the header of a frame": (r'">bhi', (f"{PROTOCOL}frame.py", f"{PROTOCOL}frames/")),
    "a magic number": (r"\b0x(4C|53)\b", (f"{PROTOCOL}frame.py",)),
    "a reader or writer of big-endian bytes": (r"(?m)^class (Reader|Writer)\b", (f"{PROTOCOL}buffer.py",)),
    "growing pauses": (r"(?m)^class \w*Backoff\b", (f"{PROTOCOL}backoff.py",)),
}
"""What a second definition of a frame, or of what it is made with, could not do without, and where it may be
written; a place that ends with / is a folder."""
RULE = re.compile(r"\brules? ([A-G]\d)\b|\(([A-G]\d)\)")


def written_in(pattern: str) -> set[str]:
    """The shipped modules in which something is written."""
    return {
        str(module.path.relative_to(ROOT))
        for module in modules().values()
        if re.search(pattern, module.path.read_text())
    }


@pytest.mark.parametrize("part", PARTS_OF_THE_WIRE)
def test_the_wire_is_defined_in_one_place(part: str) -> None:
    pattern, places = PARTS_OF_THE_WIRE[part]
    found = {path for path in written_in(pattern) if not path.startswith("libs/testkit/")}
    assert found
    assert not {path for path in found if not path.startswith(places)}


def test_a_majority_is_defined_once() -> None:
    assert written_in(r"// 2 \+ 1") == {MAJORITY}


def test_which_name_is_near_to_another_is_defined_once() -> None:
    assert written_in(r"\bdifflib\b") == {NEAREST_NAME}


@pytest.mark.parametrize("part", PARTS_OF_A_RULE)
def test_a_rule_about_copies_is_defined_once(part: str) -> None:
    pattern, places = PARTS_OF_A_RULE[part]
    assert written_in(pattern) == places


def test_rules_named_in_code_are_rules_of_the_safety_document() -> None:
    rules = set(re.findall(r"^\| ([A-G]\d) \|", (ROOT / "docs/safety.md").read_text(), re.MULTILINE))
    assert len(rules) > 30
    named = {
        (str(path.relative_to(ROOT)), rule)
        for path in text_files(".py")
        for pair in RULE.findall(path.read_text())
        for rule in pair
        if rule
    }
    assert len(named) > 20
    assert not {(path, rule) for path, rule in named if rule not in rules}
