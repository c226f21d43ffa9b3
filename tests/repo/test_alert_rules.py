"""The alert rules as Prometheus reads them: each fires on the series of `alert_cases`, as they are really
exported, and is silent when all is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.repo.alert_cases import CASES, Series
from tests.repo.promtool import needs_promtool, promtool
from tests.repo.test_metrics_doc import ALERTS, all_rows

RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
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
    assert f"{len(RULES)} rules found" in promtool("check", "rules", ALERTS)


@needs_promtool
def test_each_alert_fires_and_is_silent_when_all_is_well(tmp_path: Path) -> None:
    tests = [one for number in range(len(CASES)) for one in _test_of(number)]
    path = tmp_path / "cases.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests})
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
