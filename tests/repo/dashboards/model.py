"""What a dashboard is made of, and its JSON for Grafana 10 and newer (schema version 39).

A dashboard is read from the top: what is wrong, what is done (rates, errors), how long it takes, how full
things are. Every panel says in one sentence what it means and links to what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 39
COLUMNS = 24
Json = dict[str, Any]
_SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

RATE = "$__rate_interval"


@dataclass(frozen=True)
class Query:
    """One expression and how its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """`kind`: stat (a number, red from `red` on), timeseries or table. `alerts`: whose runbooks it links
    to. `sparse`: it may have no data while all is well."""

    title: str
    says: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    red: float | None = None
    alerts: Sequence[str] = ()
    sparse: bool = False


@dataclass(frozen=True)
class Row:
    """A heading and its panels, from left to right, line by line."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice at the top. `query`: its values; `several`: more than one can be chosen, all at first."""

    name: str
    label: str
    query: str
    several: bool = False


@dataclass(frozen=True)
class Dashboard:
    """`name`: of its file, and of its address in Grafana."""

    name: str
    title: str
    says: str
    variables: Sequence[Variable]
    rows: Sequence[Row]

    @property
    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels

    def json(self) -> Json:
        """As Grafana imports it."""
        return {
            "uid": f"waltz-{self.name}",
            "title": self.title,
            "description": self.says,
            "tags": ["waltz"],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "annotations": {"list": []},
            "links": [
                {
                    "title": "Waltz",
                    "type": "dashboards",
                    "tags": ["waltz"],
                    "asDropdown": True,
                    "includeVars": True,
                    "keepTime": True,
                }
            ],
            "templating": {"list": [_data_source(), *map(_variable, self.variables), _runbooks()]},
            "panels": list(self._panels()),
        }

    def _panels(self) -> Iterator[Json]:
        number = top = 0
        for row in self.rows:
            number += 1
            yield {
                "id": number,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
                "panels": [],
            }
            top += 1
            left = lowest = 0
            for panel in row.panels:
                if left + panel.width > COLUMNS:
                    top, left, lowest = top + lowest, 0, 0
                number += 1
                grid = {"x": left, "y": top, "w": panel.width, "h": panel.height}
                yield {"id": number, "gridPos": grid, **_panel(panel)}
                left, lowest = left + panel.width, max(lowest, panel.height)
            top += lowest


def _panel(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    defaults: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        defaults |= {
            "min": 0,
            "color": {"mode": "palette-classic"},
            "custom": {"fillOpacity": 10, "showPoints": "never"},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "links": [
            {"title": f"What to do: {alert}", "url": f"${{runbooks}}#{alert.lower()}", "targetBlank": True}
            for alert in panel.alerts
        ],
        "targets": [_target(panel, number, query) for number, query in enumerate(panel.queries)],
    }


def _options(panel: Panel) -> Json:
    if panel.kind == "stat":
        return {
            "colorMode": "background" if panel.red is not None else "value",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        }
    if panel.kind == "table":
        return {"showHeader": True}
    return {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _target(panel: Panel, number: int, query: Query) -> Json:
    now = panel.kind != "timeseries"
    return {
        "refId": chr(ord("A") + number),
        "datasource": _SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "editorMode": "code",
        "instant": now,
        "range": not now,
        **({"format": "table"} if panel.kind == "table" else {}),
    }


def _data_source() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "refresh": 1,
    }


def _runbooks() -> Json:
    text = "docs/operator-alerts.md"
    return {
        "name": "runbooks",
        "label": "Runbooks at",
        "description": "Where your people read docs/operator-alerts.md.",
        "type": "textbox",
        "query": text,
        "current": {"text": text, "value": text},
        "hide": 0,
    }


def _variable(variable: Variable) -> Json:
    chosen: Json = {"text": ["All"], "value": ["$__all"]} if variable.several else {}
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,
        "sort": 3,
        "hide": 0,
        "multi": variable.several,
        "includeAll": variable.several,
        "current": chosen,
    }
