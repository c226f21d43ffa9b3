"""SqlApplier on a connection in autocommit: the mark would be committed without the effects."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from client_tests.sql_databases import METADATA, Applying, Failing, contents, record, transactions
from waltz_client import UsageError
from waltz_client.sql import SqlApplier, SqlApplyError, SqlTables

REFUSED = "before transaction 0: UsageError: the database connection is in autocommit"


@pytest.fixture(autouse=True)
def _application_tables(engine: sa.Engine) -> None:
    METADATA.create_all(engine)
    SqlTables().create(engine)


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "autocommit"])
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_argument_is_refused(engine: sa.Engine, level: str) -> None:
    with pytest.raises(UsageError, match="isolation_level is AUTOCOMMIT"):
        SqlApplier(engine, record, isolation_level=level)


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
async def test_an_engine_in_autocommit_applies_nothing(
    engine: sa.Engine, applying: Applying, on_error: str
) -> None:
    """Also of a batch, and nothing goes among the dead letters."""
    applying.engine = applying.engine.execution_options(isolation_level="AUTOCOMMIT")
    apply = Failing()
    async with (
        applying(apply, isolation_level=None, on_application_error=on_error) as applier,
        asyncio.timeout(20),
    ):
        await applier.high_water_mark(0)
        for _ in range(2):
            with pytest.raises(SqlApplyError, match=REFUSED):
                await applier.apply(transactions(0, 3))
    assert contents(engine) == ({}, {0: -1})
    assert not apply.calls


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_driver_without_autocommit_of_its_own_may_begin_in_an_event(engine: sa.Engine) -> None:
    """What SQLAlchemy recommends for SQLite: its driver begins nothing, and an event does."""
    begun = sa.create_engine(engine.url)

    @sa.event.listens_for(begun, "connect")
    def begin_nothing(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(begun, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    async with SqlApplier(begun, record, isolation_level=None) as applier, asyncio.timeout(20):
        await applier.high_water_mark(0)
        await applier.apply(transactions(0, 3))
    assert contents(engine) == ({0: [0, 1, 2, 3]}, {0: 3})
    begun.dispose()
