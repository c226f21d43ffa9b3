"""Transactions for the page *Records*: pages of a partition, single ones, and what comes in.

The work of one question is bounded: so many transactions are searched, and so many bytes of payloads read,
the rest is for the next question. A payload becomes its row as soon as it is there, and is not kept.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from waltz_admin.errors import AdminError, UnreachableError
from waltz_client import FeedTransaction, WaltzClient
from waltz_tools.cli.transactions import Search
from waltz_tools.console.collector import ending
from waltz_tools.console.payload import preview, views
from waltz_tools.invocation import waltz_command

MAX_PAGE = 200
MAX_SEARCHED = 20_000
"""Headers that one question looks through."""
MAX_PAGE_BYTES = 16 * 1024 * 1024
"""Of payloads that one page reads; its first transaction may have more."""
MAX_QUESTIONS = 2
"""Answered at the same time; the others wait for them."""
_PIECE = 2_000
_READ_TOGETHER = 16
"""Transactions that a page reads from the end backward in one piece, which comes the oldest first."""
_IDLE_SECONDS = 60.0
ANSWER_SECONDS = 10.0
FOLLOW_BATCH = 100
"""Transactions in one message to a page that follows; of more the last ones are shown, the rest is
counted."""
FOLLOW_PAUSE_SECONDS = 0.25
MAX_MISSED = 1_000
"""Transactions that a page that follows gets of what came while its connection was cut."""

Page = dict[str, object]


class RecordReader:
    """Owner of the one client (its task, `run`): made for the first question, closed after a minute without
    one."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[WaltzClient]]) -> None:
        self._connect = connect
        self._wanted = asyncio.Event()
        self._ready: asyncio.Future[WaltzClient] | None = None
        self._users = 0
        self._last = 0.0
        self._turns = asyncio.Semaphore(MAX_QUESTIONS)

    async def run(self) -> None:
        """Hold the client while it is used, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            ready = self._ready
            if ready is None:
                self._wanted.clear()
                continue
            try:
                async with self._connect() as client:
                    if not ready.done():
                        ready.set_result(client)
                    while self._users or loop.time() - self._last < _IDLE_SECONDS:
                        await asyncio.sleep(1.0)  # a client more or less for a second costs nothing
                    self._ready = None
                    self._wanted.clear()
            except Exception as error:
                if self._ready is ready:  # else another question has begun while this client was closed
                    self._ready = None
                    self._wanted.clear()
                if not ready.done():
                    ready.set_exception(error)
                    ready.exception()  # whoever waited may have given up
                if ending():
                    raise asyncio.CancelledError from error

    @asynccontextmanager
    async def client(self) -> AsyncIterator[WaltzClient]:
        """The client, for one question; what entering it raises."""
        loop = asyncio.get_running_loop()
        if self._ready is None:
            self._ready = loop.create_future()
            self._wanted.set()
        self._users += 1
        try:
            yield await asyncio.shield(self._ready)
        finally:
            self._users -= 1
            self._last = loop.time()

    async def page(
        self,
        partition: int,
        *,
        before: int | None,
        start: int | None,
        count: int,
        wanted: Search | None,
    ) -> Page:
        """Up to `count` transactions: from `start` on, or the last ones up to `before` (without both: the end
        of the log), the newest first; with a filter those that match among the next `MAX_SEARCHED`. It ends
        early, `full`, when its payloads have more than `MAX_PAGE_BYTES`."""
        async with self._answer(), self.client() as client:
            _check(partition, client)
            end = await client.high_water_mark(partition, deadline_seconds=ANSWER_SECONDS)
            if start is not None:
                ids, low, high = await _forward(client, partition, start, end, count, wanted)
                rows = await _rows_forward(client, partition, ids)
                if len(rows) < len(ids):
                    high = ids[len(rows) - 1]
            else:
                top = end if before is None else min(before, end)
                ids, low, high = await _backward(client, partition, top, count, wanted)
                rows = await _rows_backward(client, partition, ids)
                if len(rows) < len(ids):
                    low = ids[-len(rows)]
        return {
            "partition": partition,
            "end": end,
            "rows": rows[::-1],
            "searched": [low, high] if high >= low else None,
            "older": low - 1 if low > 0 else None,
            "newer": high + 1 if high < end else None,
            "full": len(rows) < len(ids),
        }

    async def one(self, partition: int, transaction: int) -> Page:
        """One transaction in every form."""
        async with self._answer(), self.client() as client:
            _check(partition, client)
            end = await client.high_water_mark(partition, deadline_seconds=ANSWER_SECONDS)
            if not 0 <= transaction <= end:
                raise AdminError(f"partition {partition} has no transaction {transaction}: it ends at {end}")
            async with client.feed(partition, after=transaction - 1, until=transaction) as feed:
                (found,) = [one async for one in feed]
            return {**_fields(found), **views(found.data or b"")}

    async def follow(
        self, partition: int, wanted: Search | None, seen: int | None = None
    ) -> AsyncIterator[tuple[int, Page]]:
        """What is appended from now on, or after `seen`, the last transaction that a page knows of, whose
        connection was cut: at most the last `MAX_MISSED` of it. A few messages per second, each with the id
        of the last transaction looked at. First how many were left out (`missed`), then at most
        `FOLLOW_BATCH` transactions in each; none where nothing of a batch is wanted."""
        async with self.client() as client:
            _check(partition, client)
            end = await client.high_water_mark(partition, deadline_seconds=ANSWER_SECONDS)
            seen = end if seen is None else min(seen, end)
            start = max(seen, end - MAX_MISSED)
            yield start, {"missed": start - seen}
            payload = True if wanted is None or wanted.header is None else wanted.header
            # Not `where`: the page has to know how far the log was looked at.
            async with client.feed(partition, after=start, with_data=payload) as feed:
                async for batch in feed.batches():
                    found = [one for one in batch if wanted is None or wanted(one)]
                    shown = found[-FOLLOW_BATCH:]
                    left_out = len(found) - len(shown)
                    rows = {"rows": [_row(one) for one in shown][::-1], "left_out": left_out} if shown else {}
                    yield batch[-1].transaction_id, rows
                    await asyncio.sleep(FOLLOW_PAUSE_SECONDS)

    @asynccontextmanager
    async def _answer(self) -> AsyncIterator[None]:
        """One of few questions at a time, each with a time of its own."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._turns.acquire()
        except TimeoutError:
            raise UnreachableError(
                f"the console was busy with other questions for {ANSWER_SECONDS:g} s: ask again"
            ) from None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                yield
        except TimeoutError:
            raise UnreachableError(
                f"no answer from the partition's server within {ANSWER_SECONDS:g} s"
            ) from None
        finally:
            self._turns.release()


def _check(partition: int, client: WaltzClient) -> None:
    if not 0 <= partition < client.num_partitions:
        raise AdminError(f"there is no partition {partition}: the cluster has {client.num_partitions}")


async def _headers(client: WaltzClient, partition: int, low: int, high: int, wanted: Search) -> list[int]:
    async with client.feed(partition, after=low - 1, until=high, headers_only=True) as feed:
        return [one.transaction_id async for one in feed if wanted(one)]


async def _backward(
    client: WaltzClient, partition: int, top: int, count: int, wanted: Search | None
) -> tuple[list[int], int, int]:
    """Ids, and the first and the last id that were looked at."""
    if wanted is None:
        low = max(0, top - count + 1)
        return list(range(low, top + 1)), low, top
    found: list[int] = []
    high = top
    while high >= 0 and len(found) < count and top - high < MAX_SEARCHED:
        low = max(0, high - _PIECE + 1)
        found = await _headers(client, partition, low, high, wanted) + found
        high = low - 1
    if len(found) > count:
        found = found[-count:]
        return found, found[0], top
    return found, high + 1, top


async def _forward(
    client: WaltzClient, partition: int, start: int, end: int, count: int, wanted: Search | None
) -> tuple[list[int], int, int]:
    first = max(0, start)
    if wanted is None:
        last = min(end, first + count - 1)
        return list(range(first, last + 1)), first, last
    found: list[int] = []
    low = first
    while low <= end and len(found) < count and low - first < MAX_SEARCHED:
        high = min(end, low + _PIECE - 1)
        found += await _headers(client, partition, low, high, wanted)
        low = high + 1
    if len(found) > count:
        found = found[:count]
        return found, first, found[-1]
    return found, first, low - 1


async def _rows_forward(client: WaltzClient, partition: int, ids: list[int]) -> list[Page]:
    """Rows of these transactions, ascending; fewer when the payloads have more than `MAX_PAGE_BYTES`."""
    rows: list[Page] = []
    left = MAX_PAGE_BYTES
    async with aclosing(_read(client, partition, ids)) as found:
        async for size, row in found:
            rows.append(row)
            left -= size
            if left <= 0:
                break
    return rows


async def _rows_backward(client: WaltzClient, partition: int, ids: list[int]) -> list[Page]:
    """The same from the end, in pieces. The first piece is one transaction, so that there is a row; one that
    does not fit is left to the next page, since a part of it would be its oldest."""
    rows: list[Page] = []
    left, end, length = MAX_PAGE_BYTES, len(ids), 1
    while end > 0 and left > 0:
        piece: list[Page] = []
        async with aclosing(_read(client, partition, ids[max(0, end - length) : end])) as found:
            async for size, row in found:
                piece.append(row)
                left -= size
                if left < 0 and rows:
                    return rows
        rows = piece + rows
        end -= len(piece)
        fit = max(0, left) * len(rows) // max(1, MAX_PAGE_BYTES - left)  # of such payloads
        length = max(1, min(length * 2, _READ_TOGETHER, fit))
    return rows


async def _read(
    client: WaltzClient, partition: int, ids: list[int]
) -> AsyncGenerator[tuple[int, Page], None]:
    """The size and the row of each, as it comes."""
    if not ids:
        return
    if len(ids) == ids[-1] - ids[0] + 1:
        async with client.feed(partition, after=ids[0] - 1, until=ids[-1]) as feed:
            async for one in feed:
                yield _made(one)
                await asyncio.sleep(0)  # a row may be work
        return
    chosen = set(ids)
    async with client.feed(partition, after=ids[0] - 1, until=ids[-1], headers_only=True) as feed:
        headers = [one async for one in feed if one.transaction_id in chosen]
    for header in headers:
        header.data = await client.get_data(partition, header.transaction_id, deadline_seconds=ANSWER_SECONDS)
        yield _made(header)


def _made(one: FeedTransaction) -> tuple[int, Page]:
    made = len(one.data or b""), _row(one)
    one.data = None  # the batch that it came with keeps it else
    return made


def _fields(one: FeedTransaction) -> Page:
    return {
        "partition": one.partition_id,
        "id": one.transaction_id,
        "header": one.header,
        "client": one.req_id.client_id,
    }


def _row(one: FeedTransaction) -> Page:
    return {**_fields(one), **preview(one.data or b"")}


def command(
    config: str,
    partition: int,
    *,
    start: int | None,
    count: int,
    header: str | None,
    client: int | None = None,
) -> str:
    """The command that prints the same transactions."""
    words = [waltz_command(), "tail", "-c", shlex.quote(config), "-p", str(partition)]
    words += ["--from", str(start)] if start is not None else ["--last", str(count)]
    if header:
        words += ["--header", shlex.quote(header)]
    if client is not None:
        words += ["--client", str(client)]
    return " ".join(words)
