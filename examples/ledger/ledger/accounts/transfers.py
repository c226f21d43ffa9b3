"""How a decision is made: read the tables, lock what was read, append; again after a conflict.

The client runs `decide` once per attempt. By then everything up to the attempt's high-water mark is in the
tables, and the server refuses the append when one of its locks was touched after that mark: so what the
decision depends on was still true at the moment the transaction got its place in the log, whoever else was
deciding.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

from ledger.accounts.store import Store
from ledger.events import Event, Opened, Refused, Transfer, Transferred, encode
from ledger.names import check_names
from waltz_client import TransactionBuilder, WaltzClient
from waltz_client.serializers import BYTES


@dataclass(frozen=True)
class Answer:
    """How a request ended: done (now, or by an earlier attempt), or refused, and why."""

    done: bool
    text: str


DONE = Answer(True, "done")
MOST_MONEY = 10**9
"""In one request: what is in the log must fit the tables of everybody who follows it, for good. Balances and
totals have 64 bits, which is the sum of nine billion of the largest requests."""


async def carry_out(
    client: WaltzClient, store: Store, wish: Opened | Transfer, *, deadline_seconds: float = 15.0
) -> Answer:
    """The answer to a request of a customer, when it is in the log and in the tables.

    Raises WaltzClientError when the log did not take it in time, or nobody knows whether it did: the customer
    asks again, with the same id.
    """

    async def decide(builder: TransactionBuilder) -> Answer:
        event, answer = await asyncio.to_thread(decision, wish, store)
        if event is not None:
            header, data = encode(event)
            locks = event.locks()
            builder.set_header(header).set_transaction_data(data, BYTES)
            builder.set_write_locks(locks.write).set_read_locks(locks.read).set_append_locks(locks.append)
        return answer

    # All accounts of a book are in one partition, because locks, and the order of transactions, hold within
    # one.
    partition = client.partition_for(wish.book)
    return (await client.transact(partition, decide, deadline_seconds=deadline_seconds)).value


def decision(wish: Opened | Transfer, store: Store) -> tuple[Event | None, Answer]:
    """What to append, if anything, and what that means for the customer. Synchronous: call it in a thread."""
    return _opening(wish, store) if isinstance(wish, Opened) else _transfer(wish, store)


def _opening(wish: Opened, store: Store) -> tuple[Event | None, Answer]:
    there = store.balance(wish.book, wish.account) is not None
    return (None, Answer(False, "the account exists")) if there else (wish, DONE)


def _transfer(wish: Transfer, store: Store) -> tuple[Event | None, Answer]:
    source = store.balance(wish.book, wish.source)
    target = store.balance(wish.book, wish.target)
    # The answer is read last: one that comes in between is found, and the balances read before do not matter.
    earlier = store.answer(wish.book, wish.id)
    if earlier is not None:
        order, why = earlier
        if order != wish:
            return None, Answer(False, "the id was used for another transfer")
        return None, Answer(False, why) if why else DONE
    why = "no such account" if source is None or target is None else ""
    if source is not None and source < wish.amount:
        why = why or "not enough money"
    if why:
        return Refused(**asdict(wish), why=why), Answer(False, why)
    return Transferred(**asdict(wish)), DONE


def opening(book: str, body: dict[str, object]) -> Opened:
    """The wish of a request; ValueError or KeyError for one that makes no sense."""
    balance = int(str(body["balance"]))
    account = str(body["account"])
    check_names(book, account)
    if not 0 <= balance <= MOST_MONEY:
        raise ValueError(f"a balance is 0 to {MOST_MONEY}")
    return Opened(book, account, balance)


def transferring(book: str, body: dict[str, object]) -> Transfer:
    """The wish of a request; ValueError or KeyError for one that makes no sense."""
    amount = int(str(body["amount"]))
    source, target = str(body["from"]), str(body["to"])
    check_names(book, str(body["id"]), source, target)
    if not 0 < amount <= MOST_MONEY or source == target:
        raise ValueError(f"a transfer has an amount of 1 to {MOST_MONEY} and two accounts")
    return Transfer(book, str(body["id"]), source, target, amount)
