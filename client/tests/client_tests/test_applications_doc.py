"""The examples of docs/applications.md run as they stand."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from client_tests.helpers import until
from waltz_client import WaltzClient, WaltzClientCallbacks
from waltz_client.testing import InProcessLog

DOCUMENT = Path(__file__).parents[3] / "docs" / "applications.md"


def _names(number: int) -> dict[str, Callable[..., Coroutine[Any, Any, Any]]]:
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(blocks[number], str(DOCUMENT), "exec"), names)
    return names


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

    names = _names(0)
    monkeypatch.setitem(names, "WaltzClient", type("Fake", (), {"connect": staticmethod(connect)}))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(names["service"](engine))
        await until(lambda: value() == 2)
        task.cancel()
    for _ in range(2):
        await names["deciding_service"](engine)
    assert capsys.readouterr().out.splitlines() == ["done", "no more than three"]
    assert value() == 3
    engine.dispose()


async def test_own_transactions() -> None:
    log = InProcessLog(4)
    for number in range(4):
        log.partition(number).commit(b"another program's")
    async with log.client() as client:
        assert [one.data for one in await _names(1)["own"](client)] == [b"..."]


async def test_the_test() -> None:
    await _names(2)["test_a_transfer"]()
