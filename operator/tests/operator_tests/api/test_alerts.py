"""The alert rules: `prometheus-rule.yaml` is made from `alerts.yaml` and `alerts-operator.yaml`
(WALTZ_WRITE_DOCS=1 writes it); each has a runbook.

That the metrics exist is tested with processes that serve them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "manifests/monitoring"
HEAD = (
    "# Made from alerts.yaml and alerts-operator.yaml; "
    "WALTZ_WRITE_DOCS=1 .venv/bin/pytest operator/tests/operator_tests/api writes it again.\n"
)
GROUPS: list[dict[str, Any]] = [
    group
    for name in ("alerts.yaml", "alerts-operator.yaml")
    for group in yaml.safe_load((FOLDER / name).read_text())["groups"]
]
RULES = [rule for group in GROUPS for rule in group["rules"]]


def rendered() -> str:
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "waltz",
            "namespace": "waltz-system",
            "labels": {"app.kubernetes.io/name": "waltz-operator"},
        },
        "spec": {"groups": GROUPS},
    }
    return HEAD + yaml.safe_dump(document, sort_keys=False, width=150)


def test_the_rule_object_is_up_to_date() -> None:
    path = FOLDER / "prometheus-rule.yaml"
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        path.write_text(rendered())
    assert path.read_text() == rendered(), "run with WALTZ_WRITE_DOCS=1 to write it"


def test_every_alert_says_what_it_is_and_what_to_do() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs/operator-alerts.md").read_text(), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) >= 15
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["for"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operator-alerts.md"
        assert anchor == rule["alert"].lower()
        assert anchor in anchors, f"docs/operator-alerts.md has no section {rule['alert']}"


def test_the_five_that_must_be_there() -> None:
    """No quorum, replica behind, disk full in some days, certificate expiry, operator stuck."""
    names = {rule["alert"] for rule in RULES}
    assert {
        "WaltzNoQuorum",
        "WaltzReplicaBehind",
        "WaltzDiskFullSoon",
        "WaltzCertificateExpiry",
        "WaltzOperatorStuck",
    } <= names


def test_labels_in_texts_are_labels_of_the_expression() -> None:
    """A summary that names a label which an aggregation has dropped would show nothing."""
    for rule in RULES:
        expression = rule["expr"]
        kept = re.search(r"^(?:sum|max) by \(([^)]*)\)", expression)
        if kept is None or "group_right" in expression:
            continue
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= {label.strip() for label in kept[1].split(",")}, rule["alert"]
