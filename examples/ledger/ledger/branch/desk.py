"""What the branch does, from any thread: the client's calls block, and nothing here is a coroutine."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from ledger.branch.store import names
from ledger.events import HEADERS, Opened, decode, encode
from waltz_client import LockConflictError, OutcomeUnknownError, PendingAppend, WindowFullError
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.sql import BlockingSqlApplier


class Desk:
    """Every method may be called again after any error: an account is opened once."""

    def __init__(
        self,
        client: BlockingWaltzClient,
        applier: BlockingSqlApplier,
        engine: sa.Engine,
        deadline_seconds: float = 15.0,
    ) -> None:
        self._client = client
        self._applier = applier
        self._engine = engine
        self._deadline_seconds = deadline_seconds

    def open_all(self, book: str, wishes: Sequence[Opened]) -> dict[str, str]:
        """Open accounts of a book, each once, without waiting for one before the next is sent; what became of
        each.

        The tables hold what the log held at `mark`, and the server refuses an account that somebody has
        opened since. Only newer tables say whether that was the reason: another lock may have the same slot
        in the server's table, one of this very request too. An account that is not in them is sent again.
        Raises WaltzClientError, LockConflictError if there are conflicts until the deadline; then some of the
        accounts may have been opened.
        """
        deadline = time.monotonic() + self._deadline_seconds
        left = {wish.account: wish for wish in wishes}
        answers: dict[str, str] = {}
        while True:
            partition, mark = self._catch_up(book)
            for account in left.keys() & names(self._engine, book):
                answers[account] = "the account exists"
                del left[account]
            ended: queue.SimpleQueue[PendingAppend] = queue.SimpleQueue()
            for wish in left.values():
                self._send(partition, mark, wish, ended)
            conflict: LockConflictError | None = None
            for _ in range(len(left)):
                append = self._next(ended, partition)
                match append.error:
                    case None:
                        answers[str(append.context)] = "done"
                        del left[str(append.context)]
                    case LockConflictError() as conflict:
                        pass
                    case error:
                        raise error
            if conflict is None:
                return answers
            if time.monotonic() > deadline:
                raise conflict

    def _send(self, partition: int, mark: int, wish: Opened, ended: queue.SimpleQueue[PendingAppend]) -> None:
        header, data = encode(wish)
        while True:
            self._client.writable(partition, deadline_seconds=self._deadline_seconds)
            try:
                self._client.append_nowait(
                    partition=partition,
                    data=data,
                    header=header,
                    write_locks=wish.locks().write,
                    as_of=mark,
                    context=wish.account,
                    on_done=ended.put,
                )
            except WindowFullError:  # another thread was faster
                continue
            return

    def _next(self, ended: queue.SimpleQueue[PendingAppend], partition: int) -> PendingAppend:
        try:
            return ended.get(timeout=self._deadline_seconds)
        except queue.Empty:
            raise OutcomeUnknownError(
                f"partition {partition} did not answer within {self._deadline_seconds:g} s",
                partition_id=partition,
            ) from None

    def history(self, book: str) -> Iterator[dict[str, object]]:
        """What has happened to a book, straight from the log: a range of it in large batches, no table."""
        partition = self._client.partition_for(book)
        last = self._client.high_water_mark(partition, deadline_seconds=self._deadline_seconds)
        with self._client.read_range(
            partition, 0, last, where=HEADERS.owns, timeout_seconds=self._deadline_seconds
        ) as batches:
            for batch in batches:
                for transaction in batch.transactions():
                    event = decode(transaction.header, transaction.data)
                    if event.book == book:
                        yield {"event": type(event).__name__, **asdict(event)}

    def _catch_up(self, book: str) -> tuple[int, int]:
        """The partition of a book, and a mark up to which this database has applied it."""
        partition = self._client.partition_for(book)
        mark = self._client.high_water_mark(partition, deadline_seconds=self._deadline_seconds)
        self._applier.applied(partition, mark, timeout_seconds=self._deadline_seconds)
        return partition, mark
