"""The tables of the SQL helper: names, widths, those of release 0.13.2."""

import pytest
import sqlalchemy as sa

from client_tests.sql_databases import METADATA, Applying, contents, record, transactions
from waltz_client.sql import SqlTableMissingError, SqlTables


@pytest.fixture(autouse=True)
def _application_tables(engine: sa.Engine) -> None:
    METADATA.create_all(engine)
    SqlTables().create(engine)


async def test_tables_have_the_names_they_are_given(engine: sa.Engine, applying: Applying) -> None:
    schema = None
    if engine.dialect.name == "postgresql":
        schema = "app"
        with engine.begin() as connection:
            connection.execute(sa.text("create schema app"))
    tables = SqlTables(marks="PARTITION_MARKS", dead_letters="skipped", schema=schema)
    async with applying(record, tables=tables) as applier:
        with pytest.raises(SqlTableMissingError, match=r"no table .*PARTITION_MARKS: call create_tables"):
            await applier.high_water_mark(0)
        await applier.create_tables()
        await applier.create_tables()
        assert await applier.apply(transactions(0, 1)) == 1
    assert contents(engine, tables) == ({0: [0, 1]}, {0: 1})
    assert {column.name for column in tables.marks.columns} == {"partition_id", "high_water_mark"}


async def test_a_table_of_release_0_13_2_is_used_as_it_is(engine: sa.Engine, applying: Applying) -> None:
    """As its database helper describes it: processes of both releases may share the database."""
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "CREATE TABLE LEDGER_HWM (PARTITION_ID INTEGER NOT NULL PRIMARY KEY, HIGH_WATER_MARK BIGINT NOT NULL)"
            )
        )
        connection.execute(sa.text("INSERT INTO LEDGER_HWM VALUES (0, 41)"))
    tables = SqlTables(marks="ledger_hwm")
    async with applying(record, tables=tables) as applier:
        assert await applier.high_water_mark(0) == 41
        assert await applier.apply(transactions(42, 43)) == 43
    assert contents(engine, tables)[1] == {0: 43}


async def test_ids_have_64_bits(engine: sa.Engine, applying: Applying) -> None:
    mark = 2**62
    with engine.begin() as connection:
        connection.execute(sa.insert(SqlTables().marks).values(partition_id=0, high_water_mark=mark))
    async with applying(record, on_application_error="dead-letter") as applier:
        assert await applier.apply(transactions(mark + 1, mark + 2)) == mark + 2
