"""How a decision is made: look at the tables, lock what was looked at, append; again after a conflict.

The client runs `execute` once per attempt. By then everything up to the attempt's high-water mark is in the
tables, and the server refuses the append when one of its locks was touched after that mark: so what
`execute` saw was still true at the moment the transaction got its place in the log, whoever else was
deciding.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass

from ledger.accounts.store import Store
from ledger.events import Event, Opened, Refused, Transfer, Transferred, encode
from waltz_client import TransactionBuilder, TransactionContext, partition_for
from waltz_client.serializers import BYTES


@dataclass(frozen=True)
class Answer:
    """How a request ended: done (now, or by an earlier attempt), or refused, and why."""

    done: bool
    text: str


DONE = Answer(True, "done")
NOT_ENOUGH = Answer(False, "not enough money")


class Request(TransactionContext):
    """A request of a customer. `await request.answer` has its end; an error of the log is raised there."""

    def __init__(self, wish: Opened | Transfer, store: Store) -> None:
        super().__init__(expires_after_seconds=20.0)
        self.wish = wish
        self.store = store
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._decision = NOT_ENOUGH

    def partition_id(self, num_partitions: int) -> int:
        """All accounts of a book are in one partition, because locks, and the order of transactions, hold
        within a partition."""
        return partition_for(self.wish.book, num_partitions)

    async def execute(self, builder: TransactionBuilder) -> bool:
        """Decide on what the tables say now. False: nothing to append."""
        event, self._decision = await asyncio.to_thread(self._decide)
        if event is None:
            return False
        header, data = encode(event)
        locks = event.locks()
        builder.set_header(header).set_transaction_data(data, BYTES)
        builder.set_write_locks(locks.write).set_read_locks(locks.read).set_append_locks(locks.append)
        return True

    def _decide(self) -> tuple[Event | None, Answer]:
        """What to append, if anything, and what that means for the customer. In a thread."""
        wish = self.wish
        return self._decide_opening(wish) if isinstance(wish, Opened) else self._decide_transfer(wish)

    def _decide_opening(self, wish: Opened) -> tuple[Event | None, Answer]:
        there = self.store.balance(wish.book, wish.account) is not None
        return (None, Answer(False, "the account exists")) if there else (wish, DONE)

    def _decide_transfer(self, wish: Transfer) -> tuple[Event | None, Answer]:
        source = self.store.balance(wish.book, wish.source)
        target = self.store.balance(wish.book, wish.target)
        # The answer is looked up last: one that comes in between is found, and the balances read before do
        # not matter.
        earlier = self.store.answer(wish.book, wish.id)
        if earlier is not None:
            order, done = earlier
            if order != wish:
                return None, Answer(False, "the id was used for another transfer")
            return None, DONE if done else NOT_ENOUGH
        if source is None or target is None:
            return None, Answer(False, "no such account")
        if source < wish.amount:
            return Refused(**asdict(wish)), NOT_ENOUGH
        return Transferred(**asdict(wish)), DONE

    def on_completion(self, committed: bool) -> None:
        """Declined by `execute`: the decision is the answer. Committed: the answer comes when it is in the
        tables."""
        if not committed:
            self._end(self._decision)

    def on_application(self) -> None:
        """Committed, and in our own tables."""
        self._end(self._decision)

    def on_expiration(self) -> None:
        """Too late to be tried again; certainly not in the log."""
        self._end(TimeoutError("the request has expired"))

    def on_exception(self, error: BaseException) -> None:
        """The log did not take it, or nobody knows whether it did: the customer asks again, with the same
        id."""
        self._end(error)

    def forget(self) -> None:
        """Nobody waits for the answer any longer."""
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()

    def _end(self, end: Answer | BaseException) -> None:
        if self.answer.done():
            return
        if isinstance(end, Answer):
            self.answer.set_result(end)
        else:
            self.answer.set_exception(end)


def opening(book: str, body: dict[str, object]) -> Opened:
    """The wish of a request; ValueError or KeyError for one that makes no sense."""
    balance = int(str(body["balance"]))
    if balance < 0:
        raise ValueError("a balance is not negative")
    return Opened(book, str(body["account"]), balance)


def transferring(book: str, body: dict[str, object]) -> Transfer:
    """The wish of a request; ValueError or KeyError for one that makes no sense."""
    amount = int(str(body["amount"]))
    source, target = str(body["from"]), str(body["to"])
    if amount <= 0 or source == target:
        raise ValueError("a transfer has a positive amount and two accounts")
    return Transfer(book, str(body["id"]), source, target, amount)
