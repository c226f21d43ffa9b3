"""Serializers: the same errors wherever one is given, and types that say whether there is a payload."""

import json
from collections.abc import Iterator
from typing import Any, assert_type

import pytest

from client_tests.helpers import Application, until
from waltz_client import (
    BYTES,
    JSON,
    STRING,
    DataFeed,
    DataRangeBatch,
    DataRangeRead,
    DataTransaction,
    Feed,
    FeedTransaction,
    PayloadError,
    RangeBatch,
    RangeRead,
    Transaction,
    TransactionBuilder,
    UsageError,
    WaltzClientError,
)
from waltz_client.blocking import BlockingDataFeed, BlockingFeed, BlockingWaltzClient
from waltz_client.testing import InProcessLog

CANNOT_READ = r"partition 0: JsonSerializer cannot read the 1 bytes of transaction 0: JSONDecodeError: "


@pytest.fixture
def log() -> InProcessLog:
    log = InProcessLog()
    log.partition().commit(b"{")
    return log


class Text:
    """A serializer that is wrong: a payload is bytes."""

    def serialize(self, value: str) -> Any:
        return value

    def deserialize(self, data: bytes) -> str:
        return data.decode()


def test_what_cannot_be_written() -> None:
    builder = TransactionBuilder()
    wrong: list[tuple[object, Any, str]] = [
        (
            object(),
            JSON,
            "JsonSerializer cannot write this object: TypeError: Object of type object is not JSON",
        ),
        (5, STRING, "StringSerializer cannot write this int: AttributeError"),
        (5, BYTES, "BytesSerializer cannot write this int: TypeError"),
        ("x", Text(), "Text made str, and a payload is bytes"),
    ]
    for value, serializer, message in wrong:
        with pytest.raises(PayloadError, match=message) as caught:
            builder.set_transaction_data(value, serializer)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, WaltzClientError)
    assert builder.data is None


async def test_what_cannot_be_read(log: InProcessLog) -> None:
    errors: list[Exception] = []

    class Reading(Application):
        async def apply_transaction(self, transaction: Transaction) -> None:
            try:
                await transaction.data(JSON)
            except PayloadError as error:
                errors.append(error)

    async with log.client(Reading()) as client:
        with pytest.raises(PayloadError, match=CANNOT_READ) as caught:
            await client.get_data(0, 0, JSON)
        assert isinstance(caught.value.__cause__, json.JSONDecodeError)
        async for transaction in client.feed(0, until=0):
            with pytest.raises(PayloadError, match=CANNOT_READ):
                transaction.value(JSON)
            assert_type(transaction.value(STRING), str)
            assert transaction.value(STRING) == "{"
        async for batch in client.read_range(0, 0, 0):
            with pytest.raises(PayloadError, match=CANNOT_READ):
                batch.transactions()[0].value(JSON)
        bare = await anext(client.feed(0, headers_only=True))
        with pytest.raises(UsageError, match="transaction 0 was read without its payload"):
            bare.value(JSON)
        await until(lambda: errors)
    assert str(errors[0]).startswith("partition 0: JsonSerializer cannot read")


def test_what_cannot_be_read_without_a_loop(log: InProcessLog) -> None:
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        with pytest.raises(PayloadError, match=CANNOT_READ):
            client.get_data(0, 0, JSON)
        with pytest.raises(PayloadError, match=CANNOT_READ):
            next(client.feed(0)).value(JSON)


async def test_the_types_say_whether_there_is_a_payload(log: InProcessLog) -> None:
    """Held by mypy; nothing of it is there when a program runs."""
    assert (DataFeed, DataTransaction) == (Feed, FeedTransaction)
    assert (DataRangeRead, DataRangeBatch) == (RangeRead, RangeBatch)
    async with log.client() as client:
        with_data = client.feed(0, until=0)
        assert_type(with_data, DataFeed)
        async for transaction in with_data:
            assert_type(transaction, DataTransaction)
            assert_type(transaction.data, bytes)
        async for batch in client.feed(0, until=0).batches():
            assert_type(batch, list[DataTransaction])
        assert_type(client.feed(0, headers_only=True), Feed)
        assert_type(client.feed(0, with_data=lambda header: header > 3), Feed)
        bare = await anext(client.feed(0, with_data=False))
        assert_type(bare.data, bytes | None)
        async for columns in client.read_range(0, 0, 0):
            assert_type(columns.data, bytes)
        async for bare_columns in client.read_range(0, 0, 0, with_data=False):
            assert_type(bare_columns.data, bytes | None)


def test_the_types_without_a_loop(log: InProcessLog) -> None:
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        feed = client.feed(0, until=0)
        assert_type(feed, BlockingDataFeed)
        assert_type(next(feed), DataTransaction)
        assert_type(iter(feed), Iterator[DataTransaction])
        assert_type(client.feed(0, headers_only=True), BlockingFeed)
