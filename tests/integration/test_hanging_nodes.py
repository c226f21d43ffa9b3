"""Two of three storage nodes hang and nobody appends: health, metrics, alert rules and commands say so, and
get over it."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.processes import waltz
from waltz_client import WaltzClient
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get, get_json

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ALERTS = Path(__file__).resolve().parents[2] / "manifests/monitoring/alerts.yaml"
CHANGE_SECONDS = 60.0
"""The check's interval and time limit are five seconds together; the rest is for a busy machine."""
PARTITIONS = 3
HANGING = ("storage-1", "storage-2")


async def _firing(cluster: LocalCluster) -> set[str]:
    """Partitions for which the expression of WaltzPartitionUnavailable is true of what the servers serve."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    (expression,) = [rule["expr"] for rule in rules if rule["alert"] == "WaltzPartitionUnavailable"]
    parts = re.fullmatch(r"max by \((?P<labels>[\w, ]+)\) \((?P<metric>\w+)\) == 0", expression)
    assert parts is not None, f"the test does not understand {expression}"
    assert "partition" in parts["labels"].split(", ")
    values: dict[str, float] = {}
    for role in cluster.server_roles:
        _, body = await get(cluster.port(role, "http"), "/metrics")
        samples = [s for family in text_string_to_metric_families(body.decode()) for s in family.samples]
        for sample in samples:
            if sample.name == parts["metric"]:
                partition = sample.labels["partition"]
                values[partition] = max(sample.value, values.get(partition, 0.0))
    assert set(values) == {str(partition) for partition in range(PARTITIONS)}, (
        "a partition has no such metric"
    )
    return {partition for partition, value in values.items() if value == 0}


async def _until_firing(cluster: LocalCluster, wanted: set[str]) -> None:
    """Until the rule fires for exactly these; a partition that is being moved is down for a moment, and the
    rule has to hold for a minute before it alerts."""
    firing: set[str] | None = None
    try:
        async with asyncio.timeout(CHANGE_SECONDS):
            while (firing := await _firing(cluster)) != wanted:
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"the rule fires for {firing}, not for {wanted}") from None


async def _health(cluster: LocalCluster) -> list[tuple[int, dict[str, object]]]:
    answers = [await get_json(cluster.port(role, "http"), "/health") for role in cluster.server_roles]
    return [(status, body["server-health-check"]) for status, body in answers]


async def _until_health(cluster: LocalCluster, wanted: Callable[[int], bool]) -> list[dict[str, object]]:
    """Until every server's status is as wanted; the reports."""
    seen: list[tuple[int, dict[str, object]]] = []
    try:
        async with asyncio.timeout(CHANGE_SECONDS):
            while not seen or not all(wanted(status) for status, _ in seen):
                await asyncio.sleep(0.1)
                seen = await _health(cluster)
    except TimeoutError:
        raise AssertionError(f"health stayed {seen}") from None
    return [report for _, report in seen]


async def test_two_of_three_nodes_hang_and_nobody_appends(tmp_path: Path) -> None:
    async with LocalCluster(LocalSettings(tmp_path, partitions=PARTITIONS, tls=False)) as cluster:
        config = str(cluster.client_config)
        async with WaltzClient.connect(cluster.client_config) as client:
            for partition in range(PARTITIONS):
                await client.append(partition=partition, data=b"before", deadline_seconds=60)
        await _until_health(cluster, lambda status: status == 200)
        await _until_firing(cluster, set())
        for role in HANGING:
            cluster.pause_role(role)
        try:
            reports = await _until_health(cluster, lambda status: status == 500)
            names = [str(cluster.storage_endpoint(role)) for role in HANGING]
            words = "no partition can take a write: no_quorum: 1 of 3 replicas, 2 needed: " + ", ".join(
                f"{name} (does not answer)" for name in sorted(names)
            )
            for report in reports:
                assert report["summary"] == [words]
            await _until_firing(cluster, {str(partition) for partition in range(PARTITIONS)})
            await _commands_say_so(config, names)
        finally:
            for role in HANGING:
                cluster.resume_role(role)
        for report in await _until_health(cluster, lambda status: status == 200):
            assert "summary" not in report
        await _until_firing(cluster, set())
        async with WaltzClient.connect(cluster.client_config) as client:
            await client.append(partition=0, data=b"after", deadline_seconds=60)
        assert cluster.unexpected_ends() == []


async def _commands_say_so(config: str, names: list[str]) -> None:
    """One line about all partitions, one about each node, in each command; nobody is asked to empty a
    disk."""
    line = "no partition can take a write: 1 of 3 replicas, 2 needed: "
    for command in (("cluster", "status"), ("cluster", "verify"), ("doctor",)):
        done = await waltz(*command, "-c", config, "-t", "5")
        assert line in done.one_error(3), (command, done)
    doctor = await waltz("doctor", "-c", config, "-t", "5", "--output", "json")
    findings = [finding["finding"] for finding in json.loads(doctor.out)["findings"]]
    assert len(findings) == 3, findings
    assert findings[0].startswith(line)
    assert all(
        any(f"storage node {name} does not answer" in finding for finding in findings) for name in names
    )
    assert "empty" not in doctor.out
