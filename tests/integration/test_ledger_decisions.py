"""The clerk of examples/ledger against a log inside the test: conflicts, repeated ids, answers that got
lost."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from ledger.accounts.api import routes
from ledger.accounts.store import METADATA, Store, apply
from ledger.accounts.transfers import Answer, carry_out
from ledger.events import HEADERS, Event, Opened, Refused, Transfer, Transferred, decode, encode
from ledger.service import open_async_database
from ledger.statements import store as statements
from ledger.statements.__main__ import routes as statement_routes
from waltz_client import DataTransaction, OutcomeUnknownError, partition_for
from waltz_client.sql import SqlApplier, SqlApplyError, SqlCallbacks
from waltz_client.testing import InProcessLog
from waltz_protocol.aio.tasks import spawn

BOOK = "EUR"
CLAIM_OF_THE_SPARK_SINK = 1464028237
RENT = Transfer(BOOK, "rent-may", "alice", "bob", 60)


class Office:
    """One instance of the accounts service, without HTTP."""

    def __init__(self, log: InProcessLog, path: Path, apply: Callable[..., None] = apply) -> None:
        self._apply = apply
        self.log = log
        self.partition = log.partition(partition_for(BOOK, 2))
        self.engine = sa.create_engine(f"sqlite:///{path}")
        METADATA.create_all(self.engine)
        self.store = Store(self.engine)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Office":
        self.callbacks = await self._stack.enter_async_context(
            SqlCallbacks(self.engine, self._apply, where=HEADERS.owns)
        )
        await self.callbacks.create_tables()
        self.client = await self._stack.enter_async_context(self.log.client(self.callbacks))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self.engine.dispose()

    async def ask(self, wish: Opened | Transfer) -> Answer:
        return await carry_out(self.client, self.store, wish, deadline_seconds=10)

    def events(self) -> list[Event]:
        return [
            decode(one.header, one.data) for one in self.partition.transactions if HEADERS.owns(one.header)
        ]

    def balances(self) -> dict[str, int]:
        return self.store.balances(BOOK)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with Office(InProcessLog(2), tmp_path / "accounts.db") as office:
        assert (await office.ask(Opened(BOOK, "alice", 100))).done
        assert (await office.ask(Opened(BOOK, "bob", 0))).done
        yield office


async def test_a_transfer_is_carried_out_or_refused(office: Office) -> None:
    assert await office.ask(RENT) == Answer(True, "done")
    assert await office.ask(Transfer(BOOK, "rent-june", "alice", "bob", 60)) == Answer(
        False, "not enough money"
    )
    assert office.balances() == {"alice": 40, "bob": 60}
    assert [type(event) for event in office.events()] == [Opened, Opened, Transferred, Refused]


async def test_requests_that_cannot_be(office: Office) -> None:
    assert await office.ask(Opened(BOOK, "alice", 5)) == Answer(False, "the account exists")
    assert len(office.events()) == 2
    for source, target in (("alice", "nobody"), ("nobody", "alice")):
        order = Transfer(BOOK, f"from-{source}", source, target, 1)
        assert await office.ask(order) == Answer(False, "no such account")
    assert [type(event) for event in office.events()[2:]] == [Refused, Refused]


async def test_an_instance_that_lags_refuses_nothing_that_was_carried_out(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables have no such account yet: what it decides on them is checked like anything else."""
    may_apply = threading.Event()
    may_apply.set()

    def slow(connection: sa.Connection, transaction: DataTransaction) -> None:
        assert may_apply.wait(30)
        apply(connection, transaction)

    async with Office(office.log, tmp_path / "other.db", slow) as other:
        await other.callbacks.applied(office.partition.partition_id, 1)
        may_apply.clear()
        assert (await office.ask(Opened(BOOK, "carol", 100))).done
        order = Transfer(BOOK, "gift", "carol", "bob", 60)
        office.partition.hold()
        with pytest.raises(OutcomeUnknownError):
            await carry_out(office.client, office.store, order, deadline_seconds=0.5)
        asked = spawn(other.ask(order), "the customer asks again")
        await asyncio.sleep(0.2)
        office.partition.release()
        may_apply.set()
        assert await asked == Answer(True, "done")
    assert office.balances() == {"alice": 100, "bob": 60, "carol": 40}


async def test_what_another_program_appends_is_passed_over(office: Office, tmp_path: Path) -> None:
    """A partition may be shared, and the log is for all: nobody's record stops the service."""
    for header in (0, 1, CLAIM_OF_THE_SPARK_SINK):
        office.partition.commit(b"hello, log", header=header)
    assert (await office.ask(RENT)).done
    assert office.balances() == {"alice": 40, "bob": 60}
    async with open_async_database(f"sqlite+aiosqlite:///{tmp_path}/statements.db") as engine:
        async with engine.begin() as connection:
            await connection.run_sync(statements.METADATA.create_all)
        async with SqlApplier(engine, statements.apply, where=HEADERS.owns) as applier:
            await applier.create_tables()
            await applier.run(office.client, office.partition.partition_id, until=5)
        summary = await statements.Store(engine).summary(BOOK)
    assert summary == {"book": BOOK, "accounts": 2, "transfers": 1, "volume": 60, "total": 100}


async def test_an_order_is_answered_once(office: Office) -> None:
    assert (await office.ask(RENT)).done
    assert (await office.ask(RENT)).done
    assert office.balances() == {"alice": 40, "bob": 60}
    other = Transfer(BOOK, RENT.id, "alice", "bob", 1)
    assert await office.ask(other) == Answer(False, "the id was used for another transfer")


async def test_a_refusal_stays_one(office: Office) -> None:
    large = Transfer(BOOK, "house", "alice", "bob", 5_000)
    assert not (await office.ask(large)).done
    assert (await office.ask(Opened(BOOK, "carol", 9_000))).done
    assert (await office.ask(Transfer(BOOK, "gift", "carol", "alice", 9_000))).done
    assert not (await office.ask(large)).done
    assert sum(isinstance(event, Refused) for event in office.events()) == 1


async def test_nobody_spends_the_same_money_twice(office: Office, tmp_path: Path) -> None:
    """Two instances with a database each decide about everything at the same time."""
    async with Office(office.log, tmp_path / "other.db") as other, asyncio.TaskGroup() as group:
        asked = [
            group.create_task((office, other)[n % 2].ask(Transfer(BOOK, f"t{n}", "alice", "bob", 30)))
            for n in range(10)
        ]
    assert sum(task.result().done for task in asked) == 3
    assert office.balances() == {"alice": 10, "bob": 90}


@pytest.mark.parametrize("failures", ["fail_next", "conflict_next"])
async def test_failures_are_not_the_customers(office: Office, failures: str) -> None:
    getattr(office.partition, failures)(3)
    assert (await office.ask(RENT)).done
    assert office.balances() == {"alice": 40, "bob": 60}


@pytest.mark.parametrize("first_arrives", [True, False])
async def test_an_attempt_that_is_still_on_its_way_cannot_undo_a_refusal(
    office: Office, tmp_path: Path, first_arrives: bool
) -> None:
    """A service sends a transfer and dies. Meanwhile the money goes elsewhere, and the customer asks another
    instance."""
    async with Office(office.log, tmp_path / "dying.db") as dying:
        office.partition.hold()
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(dying.ask(RENT))
                while not office.partition.waiting:
                    await asyncio.sleep(0.01)
                await dying.client.close()
        assert [type(error) for error in caught.value.exceptions] == [OutcomeUnknownError]
    assert office.partition.waiting == 1
    if first_arrives:
        office.partition.release()
        assert (await office.ask(RENT)).done
    else:
        office.partition.drop()
        assert (await office.ask(Transfer(BOOK, "car", "alice", "bob", 90))).done
        assert not (await office.ask(RENT)).done
        header, data = encode(Transferred(RENT.book, RENT.id, RENT.source, RENT.target, RENT.amount))
        locks = Transferred(RENT.book, RENT.id, RENT.source, RENT.target, RENT.amount).locks()
        with pytest.raises(Exception, match="lock conflict"):  # what the dead one sent, coming in late
            await office.client.append(
                partition=office.partition.partition_id,
                data=data,
                header=header,
                write_locks=locks.write,
                append_locks=locks.append,
                as_of=1,
            )
    assert sum(event.id == RENT.id for event in office.events() if isinstance(event, Transfer)) == 1


async def test_the_health_page_reports_a_partition_that_has_stopped(office: Office) -> None:
    app = web.Application()
    app.add_routes(routes(office.client, office.callbacks, office.store))
    async with TestClient(TestServer(app)) as http, asyncio.timeout(10):
        async with http.get("/health") as answer:
            assert answer.status == 200
        office.partition.commit(b"nonsense", header=HEADERS.header(1))
        while True:
            async with http.get("/health") as answer:
                if answer.status == 503:
                    assert (
                        "stops before transaction 2"
                        in (await answer.json())[str(office.partition.partition_id)]
                    )
                    break
            await asyncio.sleep(0.01)


async def test_the_statements_say_how_far_they_are_behind(office: Office, tmp_path: Path) -> None:
    async with open_async_database(f"sqlite+aiosqlite:///{tmp_path}/statements.db") as engine:
        async with engine.begin() as connection:
            await connection.run_sync(statements.METADATA.create_all)
        partition = office.partition.partition_id
        app = web.Application()
        async with SqlApplier(engine, statements.apply, where=HEADERS.owns) as applier:
            await applier.create_tables()
            app.add_routes(statement_routes(statements.Store(engine), applier, office.client))
            async with TestClient(TestServer(app)) as http, asyncio.timeout(10):
                for until, behind in ((None, 2), (0, 1), (1, 0)):
                    if until is not None:
                        await applier.run(office.client, partition, until=until)
                    async with http.get("/health") as answer:
                        assert answer.status == 200
                        assert await answer.json() == {
                            str(partition): f"{behind} transactions behind",
                            str(1 - partition): "0 transactions behind",
                        }
                office.partition.commit(b"nonsense", header=HEADERS.header(1))
                with pytest.raises(SqlApplyError):
                    await applier.run(office.client, partition, until=2)
                async with http.get("/health") as answer:
                    assert answer.status == 503
                    assert "stops before transaction 2" in (await answer.json())[str(partition)]
                async with http.get(f"/books/{BOOK}/accounts/alice") as answer:
                    assert [line["balance"] for line in await answer.json()] == [100]


def test_amounts_make_sense() -> None:
    from ledger.accounts.transfers import opening, transferring

    for body in ({"amount": 0}, {"amount": -1}, {"amount": "x"}, {"amount": 1, "to": "alice"}, {}):
        with pytest.raises((KeyError, ValueError)):
            transferring(BOOK, {"id": "1", "from": "alice", "to": "bob", **body} if body else {})
    with pytest.raises(ValueError):
        opening(BOOK, {"account": "alice", "balance": -1})
