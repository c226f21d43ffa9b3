"""docs/findings.md lists the rules of `waltz_admin.findings`, and what they name exists: states of /health,
alert rules.

`WALTZ_WRITE_DOCS=1` writes its table anew.
"""

import os
import re

from tests.repo.files import ROOT
from tests.repo.test_metrics_doc import ALERTS, alert_rules
from waltz_admin.findings.rules import RULES
from waltz_server.store.api import StoreState

DOCUMENT = ROOT / "docs" / "findings.md"
HEAD = "| rule | kind | meaning | `/health` | alerts |\n| --- | --- | --- | --- | --- |\n"


def table() -> str:
    rows = [
        f"| `{rule.name}` | {rule.severity.value} | {rule.meaning} | {f'*{rule.health}*' if rule.health else ''} "
        f"| {', '.join(rule.alerts) or f'none: {rule.no_alert}'} |\n"
        for rule in RULES
    ]
    return HEAD + "".join(rows)


def test_the_page_lists_every_rule() -> None:
    text = DOCUMENT.read_text()
    wanted = re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table(), text)
    if os.environ.get("WALTZ_WRITE_DOCS"):
        DOCUMENT.write_text(wanted)
    assert DOCUMENT.read_text() == wanted, "WALTZ_WRITE_DOCS=1 writes it anew"
    assert table() in wanted


def test_a_state_that_a_rule_names_is_one_of_a_server() -> None:
    states = {state.value for state in StoreState}
    named = {rule.health for rule in RULES if rule.health}
    assert named <= states
    assert states - named == {StoreState.OPEN.value, StoreState.CLOSED.value}, (
        "each state without writes is a rule"
    )


def test_an_alert_that_a_rule_names_is_there() -> None:
    alerts = {rule["alert"] for rule in alert_rules()}
    named = {alert for rule in RULES for alert in rule.alerts}
    assert named <= alerts
    assert len(named) > 8


WITHOUT_RULE = {
    "WaltzDiskAlmostFull": "a share of the disk; the rules judge by growth (`disk-fills`)",
    "WaltzAppendsDropped": "load, not a state: seen over minutes only",
    "WaltzCertificateExpiry": "the operator's own certificates, which a cluster does not show",
    "WaltzCertificateInUseExpiry": "in the metrics of each process only",
    "WaltzOperatorDown": "the operator",
    "WaltzZooKeeperServerDown": "a single server of ZooKeeper",
    "WaltzOperatorStuck": "the operator",
    "WaltzOperatorErrors": "the operator",
    "WaltzOperationBlocked": "the operator",
}
"""Alerts, and why no rule says the same."""


def test_an_alert_has_a_rule_or_a_reason_why_not() -> None:
    names = {rule["alert"] for rule in alert_rules()}
    assert names - {alert for rule in RULES for alert in rule.alerts} == WITHOUT_RULE.keys()


def test_what_has_an_alert_has_one_without_the_operator() -> None:
    """But for a copy whose record at the low-water mark only who asks the node misses, as the page says."""
    names = {rule["alert"] for rule in alert_rules(ALERTS)}
    lacking = {rule.name for rule in RULES if rule.alerts and not names & {*rule.alerts}}
    assert lacking == {"replica-incomplete"}
    assert "`replica-incomplete`" in DOCUMENT.read_text().partition(HEAD)[2].partition("\n\n")[2]


def test_a_rule_has_alerts_or_says_why_it_has_none() -> None:
    assert not [rule.name for rule in RULES if bool(rule.alerts) == bool(rule.no_alert)]
