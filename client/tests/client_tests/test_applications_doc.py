"""The examples of docs/applications.md run as they stand."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from sqlalchemy.ext.asyncio import create_async_engine

from client_tests.helpers import until
from waltz_client import ClientObserver, WaltzClient, WaltzClientCallbacks
from waltz_client.prometheus import PrometheusObserver
from waltz_client.testing import InProcessLog

DOCUMENT = Path(__file__).parents[3] / "docs" / "applications.md"


def _names(defined: str) -> dict[str, Any]:
    """What the page has defined at the end of the first block that defines this name: blocks use the imports
    of those before them."""
    names: dict[str, Any] = {"__name__": __name__}
    for block in re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(DOCUMENT), "exec"), names)
        if defined in names:
            return names
    raise AssertionError(f"no block of {DOCUMENT} defines {defined}")


async def test_the_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/application.db")
    with engine.begin() as connection:
        connection.execute(sa.text("create table counters (value integer)"))
        connection.execute(sa.text("insert into counters values (0)"))
    log = InProcessLog(1)
    for _ in range(2):
        log.partition(0).commit(b"")

    def connect(path: str, callbacks: WaltzClientCallbacks | None = None) -> WaltzClient:
        assert path == "client.yaml"
        return WaltzClient.connect({"client.mockDriver": log}, callbacks)

    def value() -> int:
        with engine.connect() as connection:
            return connection.scalar(sa.text("select value from counters")) or 0

    names = _names("async_service")
    monkeypatch.setitem(names, "WaltzClient", type("Fake", (), {"connect": staticmethod(connect)}))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(names["service"](engine))
        await until(lambda: value() == 2)
        task.cancel()
    log.partition(0).commit(b"")
    asynchronous = create_async_engine(engine.url.set(drivername="sqlite+aiosqlite"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(names["async_service"](asynchronous))
        await until(lambda: value() == 3)
        task.cancel()
    await asynchronous.dispose()
    for _ in range(2):
        await names["deciding_service"](engine)
    assert capsys.readouterr().out.splitlines() == ["done", "no more than four"]
    assert value() == 4
    engine.dispose()


def test_the_flask_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/application.db", poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("create table counters (value integer)"))
        connection.execute(sa.text("insert into counters values (0)"))
    names = _names("create_app")
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setitem(names, "atexit", SimpleNamespace(register=at_exit.append))
    app = names["create_app"]({"client.mockDriver": InProcessLog(1)}, engine)
    try:
        web = app.test_client()
        answers = [web.post("/spend").json for _ in range(3)]
        assert answers == [{"answer": "done"}, {"answer": "done"}, {"answer": "no more than two"}]
    finally:
        (close,) = at_exit
        close()
    failed = web.post("/spend")
    assert (failed.status_code, failed.json) == (503, {"error": "the client is closed"})


async def test_own_transactions() -> None:
    log = InProcessLog(4)
    for number in range(4):
        log.partition(number).commit(b"another program's")
    async with log.client() as client:
        assert [one.data for one in await _names("own")["own"](client)] == [b"..."]


def test_the_test_with_a_fixture(waltz_log: InProcessLog) -> None:
    _names("test_an_order")["test_an_order"](waltz_log)


async def test_the_watched_service(monkeypatch: pytest.MonkeyPatch) -> None:
    log, registry = InProcessLog(1), CollectorRegistry()

    def connect(path: str, *, observers: list[ClientObserver]) -> WaltzClient:
        assert path == "client.yaml"
        return WaltzClient.connect({"client.mockDriver": log}, observers=observers)

    names = _names("watched_service")
    monkeypatch.setitem(names, "WaltzClient", type("Fake", (), {"connect": staticmethod(connect)}))
    monkeypatch.setitem(names, "PrometheusObserver", lambda: PrometheusObserver(registry))
    await names["watched_service"]()
    assert log.partition(0).transactions[0].data == b"hello"
    assert registry.get_sample_value("waltz_client_append_seconds_count", {"outcome": "committed"}) == 1


async def test_the_test() -> None:
    await _names("test_a_transfer")["test_a_transfer"]()


async def test_each_event_once() -> None:
    names, log, events = _names("write_down"), InProcessLog(), [b"a", b"b", b"c"]
    for count in (2, 2, 3):
        await names["write_down"]({"client.mockDriver": log}, events[:count])
    assert [one.data for one in log.partition(0).transactions] == events
