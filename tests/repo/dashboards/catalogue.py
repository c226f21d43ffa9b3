"""All dashboards, and what the tests ask about an expression."""

from __future__ import annotations

import re

from tests.repo.dashboards.cluster import CLUSTER_DASHBOARD, PARTITION_DASHBOARD
from tests.repo.dashboards.model import Dashboard
from tests.repo.dashboards.operator import OPERATOR_DASHBOARD
from tests.repo.dashboards.spark import SPARK_DASHBOARD

DASHBOARDS = (CLUSTER_DASHBOARD, PARTITION_DASHBOARD, OPERATOR_DASHBOARD, SPARK_DASHBOARD)

_SELECTOR = re.compile(r"\b((?:waltz|process)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?")


def is_of_spark(dashboard: Dashboard) -> bool:
    """Whether Spark, not Waltz, publishes what it shows."""
    return dashboard is SPARK_DASHBOARD


def filled(expr: str, rate: str = "5m", **values: str) -> str:
    """As Grafana sends it: with the variables' values, by default any."""
    expr = expr.replace("$__rate_interval", rate)
    return re.sub(r"\$([a-z]\w*)", lambda name: values.get(name[1], ".*"), expr)


def metrics_in(expr: str) -> dict[str, set[str]]:
    """Metric → the labels that its selectors name."""
    found: dict[str, set[str]] = {}
    for name, selector in _SELECTOR.findall(expr):
        found.setdefault(name, set()).update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
    return found
