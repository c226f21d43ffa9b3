"""What is in the log must fit the tables of everybody who follows it: one request stops no partition of the
ledger."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.accounts.store import METADATA, Store, apply
from ledger.accounts.transfers import MOST_MONEY, carry_out, opening, transferring
from ledger.events import HEADERS
from waltz_client.sql import SqlCallbacks
from waltz_client.testing import InProcessLog


@pytest.mark.parametrize("money", [MOST_MONEY + 1, 10**19])
def test_more_than_fits_is_refused(money: int) -> None:
    with pytest.raises(ValueError, match="a balance is 0 to"):
        opening("b", {"account": "rich", "balance": money})
    with pytest.raises(ValueError, match="an amount of 1 to"):
        transferring("b", {"id": "t1", "from": "ann", "to": "bob", "amount": money})


@pytest.mark.parametrize("name", ["", "n" * 65, "eve\0x", "\ud800", "a\nb"])
def test_a_name_that_does_not_fit_is_refused(name: str) -> None:
    """PostgreSQL stores no NUL, and half of a surrogate pair is no text anywhere."""
    for book, account in ((name, "eve"), ("b", name)):
        with pytest.raises(ValueError, match="1 to 64"):
            opening(book, {"account": account, "balance": 1})
    with pytest.raises(ValueError, match="1 to 64"):
        transferring("b", {"id": name, "from": "ann", "to": "bob", "amount": 1})


def test_a_book_takes_billions_of_the_largest_requests() -> None:
    """Totals and balances are sums of what single requests bring."""
    assert 9 * 10**9 * MOST_MONEY < 2**63


async def test_the_most_that_is_taken_stops_nothing(tmp_path: Path) -> None:
    log = InProcessLog(num_partitions=2)
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    METADATA.create_all(engine)
    store = Store(engine)
    async with SqlCallbacks(engine, apply, where=HEADERS.owns) as callbacks:
        await callbacks.create_tables()
        async with log.client(callbacks) as client:
            for name in ("ann", "n" * 64):
                opened = opening("b", {"account": name, "balance": MOST_MONEY})
                assert (await carry_out(client, store, opened)).done
            for number in range(2):  # the second one is refused, which is in the log as well
                body = {"id": f"t{number}", "from": "ann", "to": "n" * 64, "amount": MOST_MONEY}
                answer = await carry_out(client, store, transferring("b", body))
                assert answer.done == (number == 0)
            assert not callbacks.stopped
    assert store.balances("b") == {"ann": 0, "n" * 64: 2 * MOST_MONEY}
    engine.dispose()
