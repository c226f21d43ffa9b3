"""The branch service of examples/ledger: against a log inside the test, and as a process on a cluster."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import sqlalchemy as sa
from flask import Flask
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ledger.branch.service import service
from ledger.events import HEADERS, Opened, encode
from pytest_waltz import WaltzCluster
from tests.integration.cli.blocks import blocks
from tests.integration.service_pages import services, until_answered
from waltz_client import partition_for
from waltz_client.opentelemetry import OpenTelemetryObserver
from waltz_client.testing import InProcessLog

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ledger"
BOOK = "EUR"
PARTITION = partition_for(BOOK, 2)
BOTH = [{"account": "alice", "balance": 100}, {"account": "bob", "balance": 0}]
CLAIM_OF_THE_SPARK_SINK = 1464028237

pytestmark = [pytest.mark.timeout(300), pytest.mark.waltz_log(num_partitions=2)]


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def branch(waltz_log: InProcessLog, tmp_path: Path, spans: InMemorySpanExporter) -> Iterator[Flask]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    engine = sa.create_engine(f"sqlite:///{tmp_path}/branch.db")
    with service({"client.mockDriver": waltz_log}, engine, OpenTelemetryObserver(provider)) as app:
        yield app
    engine.dispose()


def test_accounts_are_opened_at_once_and_once(
    branch: Flask, waltz_log: InProcessLog, spans: InMemorySpanExporter
) -> None:
    http = branch.test_client()
    assert http.post(f"/books/{BOOK}/accounts", json=BOTH).json == {"alice": "done", "bob": "done"}
    more = [*BOTH, {"account": "carol", "balance": 5}]
    answer = http.post(f"/books/{BOOK}/accounts", json=more)
    assert answer.json == {
        "alice": "the account exists",
        "bob": "the account exists",
        "carol": "done",
    }
    waltz_log.partition(PARTITION).commit(b"\x00", header=CLAIM_OF_THE_SPARK_SINK)
    history = http.get(f"/books/{BOOK}/history").json
    assert history is not None
    assert [(one["event"], one["account"], one["balance"]) for one in history] == [
        ("Opened", "alice", 100),
        ("Opened", "bob", 0),
        ("Opened", "carol", 5),
    ]
    assert http.get("/books/USD/history").json == []
    sent = [span for span in spans.get_finished_spans() if span.name == "waltz append"]
    assert len(sent) == 3


def test_what_makes_no_sense_and_what_failed(branch: Flask, waltz_log: InProcessLog) -> None:
    http = branch.test_client()
    for body in (
        [{"account": "alice"}],
        [{"account": "alice", "balance": -1}],
        [7],
        [],
        7,
        [BOTH[0], BOTH[0]],
    ):
        assert http.post(f"/books/{BOOK}/accounts", json=body).status_code == 400
    waltz_log.partition(PARTITION).fail_next(1)
    assert http.post(f"/books/{BOOK}/accounts", json=BOTH[:1]).status_code == 503
    assert waltz_log.partition(PARTITION).transactions == []


def test_an_append_without_an_answer(waltz_log: InProcessLog, tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/branch.db")
    partition = waltz_log.partition(PARTITION)
    settings = {"client.mockDriver": waltz_log}
    with service(settings, engine, OpenTelemetryObserver(), deadline_seconds=0.5) as branch:
        http = branch.test_client()
        assert http.post(f"/books/{BOOK}/accounts", json=BOTH[:1]).status_code == 200
        partition.hold()
        answer = http.post(f"/books/{BOOK}/accounts", json=BOTH)
        assert answer.status_code == 503
        assert "did not answer" in str(answer.json)
        partition.release()
        assert http.post(f"/books/{BOOK}/accounts", json=BOTH).json == {
            "alice": "the account exists",
            "bob": "the account exists",
        }
    engine.dispose()


def test_health_and_outages(branch: Flask, waltz_log: InProcessLog, caplog: pytest.LogCaptureFixture) -> None:
    http, partition = branch.test_client(), waltz_log.partition(PARTITION)
    header, data = encode(Opened(BOOK, "alice", 1))
    partition.commit(data, header=header)
    while http.get("/health").json != {"0": "0 transactions behind", "1": "0 transactions behind"}:
        pass
    http.post(f"/books/{BOOK}/accounts", json=BOTH)
    waltz_log.disconnect()
    http.post(f"/books/{BOOK}/accounts", json=[{"account": "carol", "balance": 1}])
    assert f"partition {PARTITION} takes no appends" in caplog.text
    partition.commit(b"nonsense", header=HEADERS.header(1))
    while (answer := http.get("/health")).status_code == 200:
        pass
    assert "stops before transaction 3" in str(answer.json)


async def test_its_page(waltz_cluster: WaltzCluster, tmp_path: Path) -> None:
    """The blocks of examples/ledger/README.md, with the process that they start."""
    (directory, command), lines = (block.commands for block in blocks(EXAMPLE / "README.md", ROOT))
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "ledger", ignore=shutil.ignore_patterns("*.db*"))
    (tmp_path / "my-cluster").mkdir()
    (tmp_path / "my-cluster" / "conf").symlink_to(waltz_cluster.client_config.parent)
    async with services(tmp_path) as running, aiohttp.ClientSession() as session, asyncio.timeout(240):
        await running.start(directory, command, tmp_path / "examples" / "ledger" / "branch.yaml")
        await until_answered(session, f"http://127.0.0.1:{running.ports['8103']}/health")
        answers = [await running.curl(session, line) for line in lines]
        assert [status for status, _ in answers] == [200, 200, 200]
        opened, history, _ = [json.loads(text) for _, text in answers]
        assert opened == {"carol": "done", "dave": "done"}
        assert {one["account"] for one in history} == {"carol", "dave"}
