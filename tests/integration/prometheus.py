"""A real Prometheus on loopback that scrapes a cluster of processes, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repo.test_metrics_doc import ALERT_FILES
from waltz_testkit.ports import free_port
from waltz_tools.local.http import get_json

PROMETHEUS = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is not installed (Debian: prometheus)"
)
INTERVAL = "1s"
Labels = Mapping[str, str]


OF_THE_MACHINE = ("WaltzDiskAlmostFull", "WaltzDiskFullSoon")
"""Whether these fire depends on the disk of the machine that runs the test, whatever the cluster does."""


def hurried_rules(directory: Path, seconds: int = 2) -> Path:
    """The shipped rules but those `OF_THE_MACHINE`, with every `for` cut to `seconds`; the expressions are
    untouched."""
    groups = [group for path in ALERT_FILES for group in yaml.safe_load(path.read_text())["groups"]]
    for group in groups:
        group["interval"] = INTERVAL
        group["rules"] = [rule for rule in group["rules"] if rule["alert"] not in OF_THE_MACHINE]
        for rule in group["rules"]:
            rule["for"] = f"{seconds}s"
    path = directory / "alerts.yaml"
    path.write_text(yaml.safe_dump({"groups": groups}))
    return path


class Prometheus:
    """Owner of one process; `query` and `firing` ask its HTTP API."""

    def __init__(self, port: int) -> None:
        self._port = port

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, directory: Path, targets: Sequence[tuple[int, Labels]]
    ) -> AsyncIterator[Prometheus]:
        """`targets`: ports of 127.0.0.1 and the labels that a scrape configuration would give them."""
        directory.mkdir()
        configuration = {
            "global": {
                "scrape_interval": INTERVAL,
                "scrape_timeout": INTERVAL,
                "evaluation_interval": INTERVAL,
            },
            "rule_files": [str(hurried_rules(directory))],
            "scrape_configs": [
                {
                    "job_name": "waltz",
                    "honor_labels": True,
                    "static_configs": [
                        {"targets": [f"127.0.0.1:{port}"], "labels": dict(labels)} for port, labels in targets
                    ],
                }
            ],
        }
        config = directory / "prometheus.yaml"
        config.write_text(yaml.safe_dump(configuration))
        port = free_port()
        command = [
            str(PROMETHEUS),
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        with (
            (directory / "log").open("wb") as log,
            subprocess.Popen(command, stdout=log, stderr=log) as process,
        ):
            try:
                one = cls(port)
                await one._until_ready(process, directory / "log")
                yield one
            finally:
                process.terminate()
                process.wait(30)

    async def _until_ready(self, process: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(OSError, ValueError, AssertionError):
                await self.query("1")
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"Prometheus is not ready: {log.read_text()}")

    async def _asked(self, path: str) -> Any:
        status, answer = await get_json(self._port, path)
        assert status == 200, answer
        return answer["data"]

    async def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series, now."""
        data = await self._asked("/api/v1/query?" + urllib.parse.urlencode({"query": expr}))
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    async def numbers(self, expr: str) -> list[float]:
        """The values that are numbers: a quantile of nothing is none."""
        return [value for _, value in await self.query(expr) if not math.isnan(value)]

    async def firing(self) -> dict[str, list[dict[str, str]]]:
        """Alert → the labels of each that fires."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in (await self._asked("/api/v1/alerts"))["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found

    async def until_firing(self, alert: str, labels: Labels, seconds: float = 60.0) -> None:
        """AssertionError with what fires instead."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for one in (await self.firing()).get(alert, ()):
                if labels.items() <= one.items():
                    return
            await asyncio.sleep(0.3)
        raise AssertionError(f"{alert} {labels} does not fire, but {await self.firing()}")

    async def until_silent(self, seconds: float = 90.0) -> None:
        """No alert fires."""
        deadline = time.monotonic() + seconds
        while await self.firing():
            assert time.monotonic() < deadline, await self.firing()
            await asyncio.sleep(0.3)
