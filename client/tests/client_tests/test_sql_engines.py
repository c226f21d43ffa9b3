"""Which engines the SQL helper takes."""

from typing import Any

import pytest
import sqlalchemy as sa

from client_tests.sql_databases import record
from waltz_client import UsageError
from waltz_client.sql import SqlApplier, SqlCallbacks


def test_an_engine_that_it_cannot_use_is_refused() -> None:
    """At once and in one sentence, not with an AttributeError in a thread later."""
    asynchronous = sa.create_engine("postgresql+psycopg_async://user@127.0.0.1:1/database")
    for wrong in (asynchronous, "sqlite://", *_async_engines(asynchronous)):
        for kind in (SqlApplier, SqlCallbacks):
            with pytest.raises(UsageError, match=r"SQLAlchemy engine.*create_engine") as caught:
                kind(wrong, record)
            assert "\n" not in str(caught.value)


def _async_engines(engine: sa.Engine) -> list[Any]:
    """An AsyncEngine, where SQLAlchemy can make one."""
    try:
        from sqlalchemy.ext.asyncio import AsyncEngine
    except ImportError:  # without greenlet
        return []
    return [AsyncEngine(engine)]
