"""Rules that are defined once, and numbers of rules that exist."""

import re

from tests.repo.files import ROOT, text_files
from tests.repo.import_graph import modules

MAJORITY = re.compile(r"// 2 \+ 1")
MAJORITY_WRITTEN = {"libs/cluster/src/waltz_cluster/quorum.py"}
RULE = re.compile(r"\brules? ([A-F]\d)\b|\(([A-F]\d)\)")


def test_a_majority_is_defined_once() -> None:
    found = {
        str(module.path.relative_to(ROOT))
        for module in modules().values()
        if MAJORITY.search(module.path.read_text())
    }
    assert found == MAJORITY_WRITTEN


def test_rules_named_in_code_are_rules_of_the_safety_document() -> None:
    rules = set(re.findall(r"^\| ([A-F]\d) \|", (ROOT / "docs/safety.md").read_text(), re.MULTILINE))
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
