"""`manifests/monitoring/dashboards` is made from `tests/repo/dashboards` (WALTZ_WRITE_DOCS=1 writes it),
every expression parses, and every metric and label in it is one that a process publishes.

That the expressions give figures is tested with a cluster and a real Prometheus
(`tests/integration/test_monitoring.py`). Grafana itself is not in Debian: its rules for a dashboard are
checked here as far as they can be without it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from tests.repo.dashboards.catalogue import DASHBOARDS, filled, is_of_spark, metrics_in
from tests.repo.dashboards.model import COLUMNS, Dashboard, Panel
from tests.repo.files import ROOT
from tests.repo.promtool import check_expressions, needs_promtool
from tests.repo.test_alert_rules import RULES, SCRAPED
from tests.repo.test_metrics_doc import all_rows

FOLDER = ROOT / "manifests" / "monitoring" / "dashboards"
UNITS = {"short", "s", "ops", "Bps", "bytes", "percentunit", "rowsps", "ms"}
OF_PROMETHEUS = {
    "up": set(),
    "ALERTS": {"alertname", "alertstate"},
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
}
by_name = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)


def kustomization() -> str:
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "waltz-system",
        "generatorOptions": {"disableNameSuffixHash": True, "labels": {"grafana_dashboard": "1"}},
        "configMapGenerator": [
            {"name": f"waltz-dashboard-{one.name}", "files": [f"{one.name}.json"]} for one in DASHBOARDS
        ],
    }
    return (
        "# Made by tests/repo/test_dashboards.py. kubectl apply -k manifests/monitoring/dashboards, where a Grafana finds\n"
        "# dashboards in ConfigMaps with the label grafana_dashboard; without it, import the files.\n"
        + yaml.safe_dump(document, sort_keys=False, width=110)
    )


def written() -> dict[Path, str]:
    files = {FOLDER / f"{one.name}.json": json.dumps(one.json(), indent=1) + "\n" for one in DASHBOARDS}
    return {FOLDER / "kustomization.yaml": kustomization(), **files}


def test_the_files_are_what_the_code_says() -> None:
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        FOLDER.mkdir(exist_ok=True)
        for path, text in written().items():
            path.write_text(text)
    assert set(FOLDER.iterdir()) == written().keys()
    for path, text in written().items():
        assert path.read_text() == text, (
            "run WALTZ_WRITE_DOCS=1 .venv/bin/pytest tests/repo/test_dashboards.py"
        )


@needs_promtool
@by_name
def test_every_expression_parses(dashboard: Dashboard, tmp_path: Path) -> None:
    expressions = {
        f"{panel.title} {number}": filled(query.expr)
        for panel in dashboard.panels
        for number, query in enumerate(panel.queries)
    }
    assert len(expressions) >= len(list(dashboard.panels))
    check_expressions(tmp_path, expressions)


def _labels() -> dict[str, set[str]]:
    """Metric → the labels that its series can have."""
    found = {name: labels | SCRAPED for name, labels in OF_PROMETHEUS.items()}
    for role, rows in all_rows().items():
        for row in rows:
            own = {label for label in row.labels.replace(" or none", "").split(", ") if label}
            if role in ("Server", "Storage node"):
                own |= SCRAPED
            names = [row.name]
            if row.kind == "histogram":
                names = [f"{row.name}_{part}" for part in ("bucket", "sum", "count")]
                own |= {"le"}
            for name in names:
                found[name] = found.get(name, set()) | own
    return found


@by_name
def test_every_metric_and_label_is_one_that_is_published(dashboard: Dashboard) -> None:
    if is_of_spark(dashboard):
        pytest.skip("Spark names its own metrics; tests/integration/test_monitoring_spark.py asks a real one")
    labels = _labels()
    for panel in dashboard.panels:
        for query in panel.queries:
            used = metrics_in(query.expr)
            assert used, query.expr
            for name, matched in used.items():
                assert name in labels, (panel.title, name)
                assert matched <= labels[name], (panel.title, name, matched - labels[name])
            named = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
            for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query.expr):
                named |= {label.strip() for label in group.split(",")}
            assert named <= set().union(*(labels[name] for name in used)), (panel.title, named)


@by_name
def test_the_variables_ask_for_what_is_published(dashboard: Dashboard) -> None:
    labels = _labels()
    known = {variable.name for variable in dashboard.variables} | {
        "datasource",
        "runbooks",
        "__rate_interval",
    }
    text = json.dumps(dashboard.json())
    assert set(re.findall(r"\$\{?([a-z_]\w*)", text)) - {"__all"} <= known
    for variable in dashboard.variables:
        query = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable.query)
        if not is_of_spark(dashboard):
            assert query is not None, variable.query
            assert query[2] in labels[query[1]] | SCRAPED


@by_name
def test_grafana_can_draw_it(dashboard: Dashboard) -> None:
    """Identifiers, the grid, reference ids and units, as its schema asks."""
    drawn = dashboard.json()
    assert re.fullmatch(r"[a-z0-9-]{1,40}", drawn["uid"])
    assert drawn["id"] is None if "id" in drawn else True
    ids = [panel["id"] for panel in drawn["panels"]]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in drawn["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= COLUMNS
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
            references = [target["refId"] for target in panel["targets"]]
            assert len(references) == len(set(references))
            assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def _linked(panel: Panel) -> list[str]:
    return [link["url"].partition("#")[2] for link in _drawn(panel)["links"]]


def _drawn(panel: Panel) -> dict[str, list[dict[str, str]]]:
    dashboards = (one.json() for one in DASHBOARDS)
    return next(
        drawn
        for one in dashboards
        for drawn in one["panels"]
        if drawn["title"] == panel.title and drawn.get("description") == panel.says
    )


def test_the_runbooks_that_panels_link_to_are_there_and_each_alert_is_on_a_panel() -> None:
    headings = re.findall(r"^### (.+)$", (ROOT / "docs/operator-alerts.md").read_text(), re.MULTILINE)
    anchors = {heading.lower() for heading in headings}
    linked = {alert for one in DASHBOARDS for panel in one.panels for alert in panel.alerts}
    for one in DASHBOARDS:
        for panel in one.panels:
            assert set(_linked(panel)) <= anchors
            assert panel.says.endswith(".")
    assert linked == RULES.keys()
