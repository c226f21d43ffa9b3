"""docs/metrics.md is made from what the services publish, what they say that it means, and the alert
rules."""

import os
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family

from tests.repo.files import ROOT
from waltz_client.prometheus import PrometheusObserver
from waltz_operator.run.metrics import OperatorMetrics
from waltz_protocol.aio.following import FollowingContext
from waltz_runtime.certificates import publish_expiry
from waltz_runtime.exposition import BUILD_INFO, BUILD_INFO_HELP
from waltz_runtime.instruments import HISTOGRAM_BOUNDS, Counter, Gauge, Meter, Metric, Timer
from waltz_runtime.meanings import Meaning, Meanings, place_of
from waltz_runtime.metrics import MetricsRegistry
from waltz_server.metric_meanings import MEANINGS as SERVER
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.owned_partition import Partition
from waltz_server.server import WaltzServer
from waltz_storage.metric_meanings import MEANINGS as STORAGE
from waltz_storage.service.disk_watch import DiskWatch
from waltz_storage.service.metrics import StorageMetrics

DOCUMENT = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "manifests" / "monitoring" / "alerts.yaml"
OPERATOR_ALERTS = ALERTS.with_name("alerts-operator.yaml")
ALERT_FILES = (ALERTS, OPERATOR_ALERTS)
"""The second one is for where the operator runs, and only there."""


def alert_rules(*files: Path) -> list[dict[str, Any]]:
    """The rules of these files; of all where none is given."""
    documents = [yaml.safe_load(path.read_text()) for path in files or ALERT_FILES]
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


class Row(NamedTuple):
    name: str
    kind: str
    labels: str
    help: str
    json: str = ""


def followed() -> FollowingContext:
    """One with a certificate of its own."""
    context = FollowingContext.__new__(FollowingContext, ssl.PROTOCOL_TLS_CLIENT)
    context.expires = 0.0
    return context


def published_by_a_server() -> MetricsRegistry:
    """The names only: nothing that could be read is behind them."""
    registry = MetricsRegistry(lambda: 0.0)
    for name in ("waltz-server.tls", "waltz-server.storage-tls"):
        publish_expiry(registry, name, followed())
    server = SimpleNamespace(metrics=registry, registry=None, _detector=None, _directory=None)
    WaltzServer._publish_gauges(cast("Any", server))
    Partition._publish_gauges(cast("Any", SimpleNamespace(_metrics=PartitionMetrics(registry, 0))))
    return registry


def published_by_a_storage_node() -> MetricsRegistry:
    registry = MetricsRegistry(lambda: 0.0)
    publish_expiry(registry, "waltz-storage.tls", followed())
    nothing = cast("Any", None)
    StorageMetrics(registry, nothing).partition_opened(SimpleNamespace(partition_id=0), nothing)  # type: ignore[arg-type]
    DiskWatch(nothing, nothing, nothing).publish(registry)
    return registry


def _row(key: str, metric: Metric, meaning: Meaning) -> Row:
    place = place_of(key)
    name, labels = meaning.prometheus or place.prometheus, sorted({**place.labels, **meaning.labels})
    match metric:
        case Timer():
            return Row(f"{name}_seconds", "histogram", ", ".join(labels), meaning.help, place.name)
        case Counter() | Meter():
            return Row(f"{name}_total", "counter", ", ".join(labels), meaning.help, place.name)
        case Gauge() if meaning.counts:
            return Row(f"{name}_total", "counter", ", ".join(labels), meaning.help, place.name)
        case Gauge() if meaning.text:
            return Row(f"{name}_info", "gauge", ", ".join([*labels, "value"]), meaning.help, place.name)
        case Gauge():
            return Row(name, "gauge", ", ".join(labels), meaning.help, place.name)


def rows_of_a_service(registry: MetricsRegistry, meanings: Meanings) -> list[Row]:
    rows: dict[str, Row] = {}
    for key, metric in registry.metrics.items():
        row = _row(key, metric, meanings[place_of(key).name])
        known = rows.setdefault(row.name, row)
        if known.labels == row.labels and known != row:  # one name with another value of a label
            rows[row.name] = row._replace(json=f"{known.json}`, `{row.json}")
        elif known != row:  # of the process and of each partition
            rows[row.name] = row._replace(labels=f"{row.labels or known.labels} or none")
    rows[BUILD_INFO] = Row(BUILD_INFO, "gauge", "role, version", BUILD_INFO_HELP)
    return sorted(rows.values())


def rows_of_a_registry(registry: CollectorRegistry, labels: dict[str, str]) -> Iterator[Row]:
    for family in registry.collect():
        if family.name.startswith("waltz_"):
            yield _described(family, labels.get(family.name, ""))


def _described(family: Family, labels: str) -> Row:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return Row(name, family.type, labels, family.documentation)


def labels_of(owner: object) -> dict[str, str]:
    """Family → its labels, of the prometheus_client metrics among the attributes of an object."""
    found = {}
    for one in vars(owner).values():
        names = getattr(one, "_labelnames", None)
        if names is not None:
            found[one._name] = ", ".join(names)
    return found


def alerts() -> dict[str, list[str]]:
    """Metric → the alerts whose rules name it."""
    found: dict[str, list[str]] = {}
    for rule in alert_rules():
        for name in sorted(set(re.findall(r"\bwaltz_[a-z_]+", rule["expr"]))):
            found.setdefault(name, []).append(rule["alert"])
    return found


def all_rows() -> dict[str, list[Row]]:
    operator, client = OperatorMetrics(), CollectorRegistry()
    observer = PrometheusObserver(client)
    of_a_client = {**labels_of(observer)}
    of_a_client |= {f.name: "client, partition" for f in observer.describe()}
    return {
        "Server": rows_of_a_service(published_by_a_server(), SERVER),
        "Storage node": rows_of_a_service(published_by_a_storage_node(), STORAGE),
        "Operator": sorted(rows_of_a_registry(operator.registry, labels_of(operator))),
        "Client": sorted(rows_of_a_registry(client, of_a_client)),
    }


def render() -> str:
    alerting = alerts()
    sections = []
    for title, rows in all_rows().items():
        with_json = any(row.json for row in rows)
        head = ["metric", "kind", "labels", "meaning", *(["JSON"] if with_json else []), "alerts"]
        lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for row in rows:
            cells = [f"`{row.name}`", row.kind, row.labels, row.help]
            cells += [f"`{row.json}`" if row.json else ""] if with_json else []
            lines.append("| " + " | ".join([*cells, ", ".join(alerting.get(row.name, []))]) + " |")
        sections.append(
            f"## {title}\n\n" + "\n".join(re.sub(r"\|  (?=\|)", "| ", line) for line in lines) + "\n"
        )
    return HEAD + "\n".join(sections)


HEAD = f"""# Metrics

What each part of Waltz publishes for Prometheus, and which alert rules of `manifests/monitoring` use it.
Servers and storage nodes serve it at `/metrics` of their HTTP port to whoever accepts `text/plain` (that is
what Prometheus asks for), and the JSON of release 0.13.2 to others; both are read from the same instruments.
The column *JSON* has the name there, below `waltz-server`, `waltz-storage` or `….partition-N`. The operator
serves its own; a client has what its application publishes ([applications.md](applications.md)).

Histograms have one bucket per power of two from {HISTOGRAM_BOUNDS[0] * 1000:.2f} ms to {HISTOGRAM_BOUNDS[-1]:.0f} s and add up:
`histogram_quantile(0.99, sum by (le) (rate(waltz_server_response_latency_seconds_bucket[5m])))` is the 99th
percentile over all partitions and servers. The usual `process_*` metrics are there as well.

## Where the time of an append goes

In this order; each is a histogram, so that `rate(…_sum[5m]) / rate(…_count[5m])` is the mean, and the means
of the stages of one process add up.

| stage | from | to | histogram |
| --- | --- | --- | --- |
| client | the call of `append` | its frame is sent | `waltz_client_append_wait_seconds` |
| queue | its arrival at the server | handed to the store: locks, admission, bytes in flight | `waltz_server_append_stage_seconds{{stage="queue"}}` |
| storage | there | the reply that makes a majority | `waltz_server_append_stage_seconds{{stage="storage"}}` |
| storage node | a request's arrival | its sync has returned (a part of *storage*) | `waltz_storage_append_latency_seconds` |
| commit | the majority | the committed mark has risen | `waltz_server_append_stage_seconds{{stage="commit"}}` |
| feed | there | written to the clients that follow the end of the log | `waltz_server_append_stage_seconds{{stage="feed"}}` |
| all | its frame is sent | the client sees it in the feed | `waltz_client_append_seconds{{outcome="committed"}}` |

The stages of a server are of all its partitions together; `waltz_server_response_latency_seconds`, which is
*queue* and *storage*, says which partition is slow. A clock is read once per batch of appends, never per
append.

"""


def test_every_metric_has_a_meaning_and_every_meaning_a_metric() -> None:
    for registry, meanings in ((published_by_a_server(), SERVER), (published_by_a_storage_node(), STORAGE)):
        assert {place_of(key).name for key in registry.metrics} == set(meanings)


def test_every_alert_is_about_a_metric_of_the_page() -> None:
    names = {row.name for rows in all_rows().values() for row in rows}
    assert set(alerts()) <= names, set(alerts()) - names


def test_the_document_is_what_the_code_says() -> None:
    text = render()
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text, (
        "run WALTZ_WRITE_DOCS=1 .venv/bin/pytest tests/repo/test_metrics_doc.py"
    )
