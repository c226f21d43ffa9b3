"""The dashboard of Spark on the pages of a real Spark with the settings that are rendered for Kubernetes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.integration.prometheus import Prometheus, needs_prometheus
from tests.repo.dashboards.catalogue import filled
from tests.repo.dashboards.spark import SPARK_DASHBOARD
from tests.repo.files import ROOT
from waltz_tools.local.java import find_java

pytestmark = [pytest.mark.long, pytest.mark.timeout(420), needs_prometheus]

PROGRAM = Path(__file__).with_name("spark_metrics_program.py")
APPLICATION = ROOT / "spark-on-k8s/deploy/rendered/ledger-balances"
SECONDS = 240


def rendered_settings() -> dict[str, str]:
    """Those about metrics."""
    settings = yaml.safe_load((APPLICATION / "kubeflow.yaml").read_text())["spec"]["sparkConf"]
    about = (
        "spark.metrics.",
        "spark.ui.prometheus.",
        "spark.sql.streaming.metricsEnabled",
        "spark.sql.shuffle.",
    )
    return {key: value for key, value in settings.items() if key.startswith(about)}


def scraped_paths() -> list[str]:
    monitor = yaml.safe_load((APPLICATION / "pod-monitor.yaml").read_text())
    return [endpoint["path"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]


async def test_each_panel_has_figures(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), json.dumps(rendered_settings())]
    environment = os.environ | {"JAVA_HOME": str(Path(find_java()).resolve().parents[1])}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        ) as spark,
    ):
        assert spark.stdin is not None
        assert spark.stdout is not None
        try:
            line = (await asyncio.to_thread(spark.stdout.readline)).decode().strip()
            port = urlsplit(line).port
            assert port, (tmp_path / "log").read_text()
            targets = [
                (port, {"namespace": "spark-jobs", "__metrics_path__": path}) for path in scraped_paths()
            ]
            async with Prometheus.running(tmp_path / "prometheus", targets) as prometheus:
                await _panels_have_figures(prometheus)
        finally:
            spark.stdin.close()
            await asyncio.to_thread(spark.wait, 60)


async def _panels_have_figures(prometheus: Prometheus) -> None:
    empty = ["not asked yet"]
    for _ in range(SECONDS // 2):  # until a trigger has ended, and the slowest page was scraped twice
        empty = [
            f"{panel.title}: {expr}"
            for panel in SPARK_DASHBOARD.panels
            if not panel.sparse
            for query in panel.queries
            for expr in [filled(query.expr, rate="15s", namespace="spark-jobs")]
            if not await prometheus.numbers(expr)
        ]
        if not empty:
            break
        await asyncio.sleep(2)
    assert not empty, "\n".join(empty)
    triggers = SPARK_DASHBOARD.rows[1].panels[2].queries[0].expr
    assert [labels["query"] for labels, _ in await prometheus.query(filled(triggers))] == ["ledger_balances"]
