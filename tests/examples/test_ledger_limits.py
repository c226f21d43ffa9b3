"""One request of a customer must not stop a partition of the ledger, or the clock of the inventory, for
ever."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.accounts.store import METADATA, Store, apply
from ledger.accounts.transfers import carry_out, opening, transferring
from ledger.events import HEADERS
from waltz_client.sql import SqlCallbacks
from waltz_client.testing import InProcessLog

HUGE = 10**19


@pytest.mark.parametrize(
    ("make", "body"),
    [
        (transferring, {"id": "t1", "from": "ann", "to": "bob", "amount": HUGE}),
        (opening, {"account": "rich", "balance": HUGE}),
    ],
    ids=["a transfer that is refused", "an account"],
)
async def test_a_huge_number_does_not_stop_the_book(make, body, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = InProcessLog(num_partitions=2)
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    METADATA.create_all(engine)
    store = Store(engine)
    async with SqlCallbacks(engine, apply, where=HEADERS.owns) as callbacks:
        await callbacks.create_tables()
        async with log.client(callbacks) as client:
            for name in ("ann", "bob"):
                await carry_out(client, store, opening("b", {"account": name, "balance": 5}))
            try:
                wish = make("b", body)
            except ValueError:
                return  # 400: that is what should happen
            try:
                await carry_out(client, store, wish, deadline_seconds=1.0)
            except Exception as error:
                print(type(error), error)
            later = transferring("b", {"id": "t2", "from": "ann", "to": "bob", "amount": 1})
            answer = await carry_out(client, store, later, deadline_seconds=2.0)
            assert answer.done
            assert not callbacks.stopped
    engine.dispose()
