"""Every asynchronous test of this package runs on plain asyncio and on uvloop."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from waltz_testkit.ports import free_port


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def unused_port() -> int:
    return free_port()
