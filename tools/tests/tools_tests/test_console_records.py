"""Pages of records: bounded in bytes, and no payload is kept longer than its row takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import StreamReader

from tools_tests.console_rig import Rig, console
from waltz_admin.errors import UnreachableError
from waltz_client import FeedTransaction
from waltz_tools.cli.transactions import Search
from waltz_tools.console import app, records
from waltz_tools.console.records import MAX_QUESTIONS, RecordReader

BUDGET = 100_000
SIZES = [20_000, 50_000, 250_000, 10, 10, 10, 30_000, 60_000, 90_000, 5, 5, 5, 5, 200_000, 7, 99_990]


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_PAGE_BYTES", BUDGET)


def fill(rig: Rig) -> None:
    for number, size in enumerate(SIZES):
        rig.log.partition(1).commit(b"x" * size, header=number % 2)


@pytest.mark.parametrize("header", [None, 0])
@pytest.mark.parametrize(("at", "following"), [("before=15", "older"), ("from=0", "newer")])
async def test_pages_stop_at_a_budget_of_bytes_and_leave_nothing_out(
    at: str, following: str, header: int | None
) -> None:
    wanted = [number for number in range(len(SIZES)) if header is None or number % 2 == header]
    chosen = "" if header is None else f"&header={header}"
    seen: list[int] = []
    async with console() as rig:
        fill(rig)
        full = 0
        while True:
            page = await rig.page(f"/api/records?partition=1&count=200{chosen}&{at}")
            rows = page["rows"]
            assert isinstance(rows, list)
            ids = [row["id"] for row in rows]
            assert ids == sorted(ids, reverse=True)
            assert len(ids) == 1 or sum(row["size"] for row in rows[1:-1]) < BUDGET
            seen += ids if following == "older" else ids[::-1]
            full += bool(page["full"])
            if page[following] is None:
                break
            at = f"{'before' if following == 'older' else 'from'}={page[following]}"
        assert full >= 2
        assert not page["full"]
    assert seen == (wanted[::-1] if following == "older" else wanted)


async def test_the_end_of_the_log_is_shown_first() -> None:
    async with console() as rig:
        fill(rig)
        page = await rig.page("/api/records?partition=1&count=200")
        rows = page["rows"]
        assert isinstance(rows, list)
        assert (rows[0]["id"], page["newer"], page["full"]) == (15, None, True)
        assert page["older"] == rows[-1]["id"] - 1
        assert page["searched"] == [rows[-1]["id"], 15]


class Payload(bytes):
    """Counts how many of them exist."""

    alive = 0
    most = 0

    def __new__(cls, size: int) -> Payload:
        cls.alive += 1
        cls.most = max(cls.most, cls.alive)
        return super().__new__(cls, size)

    def __del__(self) -> None:
        type(self).alive -= 1


class CountingClient:
    """A log of transactions that are made when they are read. `questions`: at the same time."""

    num_partitions = 1

    def __init__(self) -> None:
        self.asking = self.most_asking = 0

    async def high_water_mark(self, *_: object, **__: object) -> int:
        self.asking += 1
        self.most_asking = max(self.most_asking, self.asking)
        await asyncio.sleep(0.01)
        self.asking -= 1
        return 199

    @asynccontextmanager
    async def feed(
        self, partition: int, *, after: int, until: int, headers_only: bool = False, **_: Any
    ) -> AsyncIterator[AsyncIterator[FeedTransaction]]:
        async def read() -> AsyncIterator[FeedTransaction]:
            for number in range(after + 1, until + 1):
                data = None if headers_only else Payload(100)
                yield FeedTransaction((7, 1, 0, number, number, 1 if number % 3 else 0), data)
                del data

        yield read()

    async def get_data(self, *_: object, **__: object) -> bytes:
        return Payload(100)


@asynccontextmanager
async def reading(client: CountingClient) -> AsyncIterator[RecordReader]:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        yield client

    reader = RecordReader(connect)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run())
        yield reader
        task.cancel()


@pytest.mark.parametrize("header", [None, "0"])
@pytest.mark.parametrize("start", [None, 0])
async def test_a_payload_is_not_kept_when_its_row_is_made(start: int | None, header: str | None) -> None:
    Payload.alive = Payload.most = 0
    client = CountingClient()
    async with reading(client) as reader:
        wanted = Search.of(header, None)
        page = await reader.page(0, before=None, start=start, count=200, wanted=wanted)
    rows = page["rows"]
    assert isinstance(rows, list)
    assert len(rows) == (200 if header is None else 67)
    assert Payload.most <= 3


async def test_few_questions_are_answered_at_the_same_time() -> None:
    client = CountingClient()
    async with reading(client) as reader:
        await asyncio.gather(
            *(reader.page(0, before=None, start=None, count=9, wanted=None) for _ in range(8))
        )
    assert client.most_asking == MAX_QUESTIONS


async def test_who_waits_too_long_for_others_has_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ANSWER_SECONDS", 0.02)
    client = CountingClient()

    async def never(*_: object, **__: object) -> int:
        await asyncio.Event().wait()
        return 0

    async with reading(client) as reader:
        for _ in range(MAX_QUESTIONS):
            await reader._turns.acquire()
        with pytest.raises(UnreachableError, match="busy with other questions"):
            await reader.one(0, 1)
        for _ in range(MAX_QUESTIONS):
            reader._turns.release()
        monkeypatch.setattr(client, "high_water_mark", never)
        for _ in range(MAX_QUESTIONS + 1):
            with pytest.raises(UnreachableError, match="no answer from the partition"):
                await reader.one(0, 1)


@asynccontextmanager
async def following(rig: Rig, query: str = "", seen: int | None = None) -> AsyncIterator[Followed]:
    headers = {} if seen is None else {"Last-Event-ID": str(seen)}
    async with rig.client.get(f"/api/follow?partition=1{query}", headers=headers) as stream:
        assert stream.status == 200
        yield Followed(stream.content)


class Followed:
    """The messages of a page that follows, without beats."""

    def __init__(self, content: StreamReader) -> None:
        self._content = content

    async def next(self) -> tuple[int, dict[str, Any]]:
        """The position, and what came with it."""
        while True:
            message = dict(
                line.split(": ", 1)
                for line in (await self._content.readuntil(b"\n\n")).decode().splitlines()
                if line
            )
            if message["event"] != "beat":
                assert message["event"] in ("position", "records")
                return int(message["id"]), json.loads(message["data"])

    async def ids(self, most: int) -> list[int]:
        """Of the transactions that come, up to this one."""
        found: list[int] = []
        position = -2
        while position < most:
            position, body = await self.next()
            found += [row["id"] for row in body.get("rows", ())][::-1]
        return found


@pytest.mark.parametrize("header", [None, 0])
async def test_a_page_that_follows_gets_what_came_while_its_connection_was_cut(header: int | None) -> None:
    query = "" if header is None else f"&header={header}"
    async with console() as rig:
        async with following(rig, query) as page:
            assert await page.next() == (-1, {"missed": 0})
        fill(rig)
        async with following(rig, query, -1) as page:
            assert await page.next() == (-1, {"missed": 0})
            assert await page.ids(15) == [n for n in range(16) if header is None or n % 2 == header]
            rig.log.partition(1).commit(b"odd", header=1)
            assert await page.ids(16) == ([16] if header is None else []), "how far it was looked at is known"
        async with following(rig, query, 16) as page:
            assert await page.next() == (16, {"missed": 0})


async def test_a_page_that_ended_its_connection_says_what_it_has_seen() -> None:
    """As one in a tab that is not shown. What the browser says of a connection that was cut later is
    newer."""
    async with console() as rig:
        async with following(rig, "&seen=-1") as page:
            fill(rig)
            assert await page.next() == (-1, {"missed": 0})
            assert await page.ids(15) == list(range(16))
        async with following(rig, "&seen=13") as page:
            assert await page.next() == (13, {"missed": 0})
            assert await page.ids(15) == [14, 15]
        async with following(rig, "&seen=3", 14) as page:
            assert await page.next() == (14, {"missed": 0})
            assert await page.ids(15) == [15]


async def test_a_page_that_was_cut_for_long_gets_the_end_of_what_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "MAX_MISSED", 5)
    async with console() as rig:
        fill(rig)
        async with following(rig, seen=2) as page:
            assert await page.next() == (10, {"missed": 8})
            assert await page.ids(15) == [11, 12, 13, 14, 15]
        async with following(rig, seen=99) as page:  # of another log, which had this address before
            assert await page.next() == (15, {"missed": 0})


async def test_why_a_page_cannot_follow_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page asks for when its stream is refused."""
    async with console() as rig:
        for query, headers, words in (
            ("&header=seven", {}, "a header filter is"),
            ("", {"Last-Event-ID": "x"}, "Last-Event-ID is a number"),
            ("&seen=x", {}, "seen is a number"),
        ):
            status, body = await rig.get(f"/api/follow?partition=1{query}", **headers)
            assert (status, words in str(body["error"])) == (400, True), body
        monkeypatch.setattr(app, "MAX_STREAMS", 0)
        status, body = await rig.get("/api/follow?partition=1")
        assert (status, body) == (503, {"error": "0 pages are live already: close one"})
