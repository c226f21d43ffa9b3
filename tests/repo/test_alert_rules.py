"""The alert rules as Prometheus reads them: each fires on the series of `alert_cases`, as they are really
exported, and is silent when all is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.repo.alert_cases import CASES, Series
from tests.repo.promtool import needs_promtool, promtool
from tests.repo.test_metrics_doc import ALERT_FILES, ALERTS, OPERATOR_ALERTS, alert_rules, all_rows

RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in alert_rules()}
SCRAPED = {"namespace", "pod", "app_kubernetes_io_instance", "app_kubernetes_io_component"}
"""Labels that the scrape configuration adds to those of a server or storage node."""


def _inputs(series: tuple[Series, ...]) -> list[dict[str, str]]:
    return [{"series": one.text, "values": one.values} for one in series]


def _test_of(number: int) -> list[dict[str, Any]]:
    case = CASES[number]
    rule = RULES[case.alert]
    annotations = rule["annotations"] | {"summary": case.summary}
    fires = {"exp_labels": rule["labels"] | case.labels, "exp_annotations": annotations}
    at = {"eval_time": f"{case.minutes}m", "alertname": case.alert}
    return [
        {
            "interval": "1m",
            "name": f"{case.alert} fires",
            "input_series": _inputs(case.series),
            "alert_rule_test": [
                {"eval_time": "0m", "alertname": case.alert, "exp_alerts": []},
                at | {"exp_alerts": [fires]},
            ],
        },
        {
            "interval": "1m",
            "name": f"{case.alert} is silent",
            "input_series": _inputs(case.well),
            "alert_rule_test": [at | {"exp_alerts": []}],
        },
    ]


@needs_promtool
def test_the_rules_are_rules() -> None:
    for path in ALERT_FILES:
        assert f"{len(alert_rules(path))} rules found" in promtool("check", "rules", path)


@needs_promtool
def test_each_alert_fires_and_is_silent_when_all_is_well(tmp_path: Path) -> None:
    tests = [one for number in range(len(CASES)) for one in _test_of(number)]
    path = tmp_path / "cases.yaml"
    path.write_text(
        yaml.safe_dump(
            {"rule_files": [str(file) for file in ALERT_FILES], "evaluation_interval": "1m", "tests": tests}
        )
    )
    promtool("test", "rules", path)


def test_what_needs_the_operator_is_in_a_file_of_its_own() -> None:
    """Without the operator its metrics are absent: such a rule would never fire, or permanently."""
    for path, needs_it in ((ALERTS, False), (OPERATOR_ALERTS, True)):
        for rule in alert_rules(path):
            assert ("waltz_operator_" in rule["expr"]) == needs_it, rule["alert"]


@needs_promtool
def test_nothing_fires_where_neither_process_nor_operator_is_scraped(tmp_path: Path) -> None:
    """As on machines whose Prometheus has `alerts.yaml` alone."""
    silent = [
        {"eval_time": "2h", "alertname": rule["alert"], "exp_alerts": []} for rule in alert_rules(ALERTS)
    ]
    path = tmp_path / "nothing.yaml"
    test = {"interval": "1m", "input_series": [], "alert_rule_test": silent}
    path.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]})
    )
    promtool("test", "rules", path)


def test_each_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == RULES.keys()


def test_the_series_of_the_cases_are_really_exported() -> None:
    """With the labels of the page, and those of the scrape configuration where it is a server or a node."""
    labels = {row.name: row.labels for rows in all_rows().values() for row in rows}
    for series in (one for case in CASES for one in (*case.series, *case.well)):
        if series.metric == "up":
            continue
        own = {label for label in labels[series.metric].replace(" or none", "").split(", ") if label}
        if series.metric.startswith("waltz_operator_"):
            assert series.labels.keys() == own, series.text
        else:
            assert series.more.keys() == own, series.text
            assert series.target.keys() == SCRAPED
