"""A client belongs to the event loop that entered it: on another one nobody would wake who waits."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from waltz_client import BYTES, Append, ClientClosedError, TransactionBuilder, UsageError, WaltzClient
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog


def _decide(builder: TransactionBuilder) -> None:
    builder.set_transaction_data(b"x", BYTES)


async def _append_nowait(client: WaltzClient) -> None:
    client.append_nowait(partition=0, data=b"x", on_done=lambda _: None)


async def _feed(client: WaltzClient) -> None:
    async with client.feed(0, until=0) as feed:
        await anext(feed)


async def _range(client: WaltzClient) -> None:
    async with client.read_range(0, 0, 0) as read:
        await anext(read)


async def _servers(client: WaltzClient) -> None:
    assert client.servers


CALLS: dict[str, Callable[[WaltzClient], Awaitable[object]]] = {
    "append": lambda client: client.append(partition=0, data=b"x"),
    "append_nowait": _append_nowait,
    "append_many": lambda client: client.append_many([Append(0, b"x")]),
    "high_water_mark": lambda client: client.high_water_mark(0),
    "get_data": lambda client: client.get_data(0, 0),
    "writable": lambda client: client.writable(0),
    "transact": lambda client: client.transact(0, _decide),
    "flush": lambda client: client.flush_transactions(),
    "feed": _feed,
    "range": _range,
    "servers": _servers,
    "close": lambda client: client.close(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_on_another_loop_is_refused(call: Callable[[WaltzClient], Awaitable[object]]) -> None:
    log = InProcessLog(num_partitions=1)
    log.partition(0).commit(b"x")
    async with log.client() as client:

        async def elsewhere() -> None:
            with pytest.raises(UsageError, match="entered on another event loop"):
                async with asyncio.timeout(10):
                    await call(client)
            assert client.num_partitions == 1
            assert not client.status().closing

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await client.high_water_mark(0) == 0


@pytest.mark.parametrize("call", ["append_nowait", "feed", "read_range"])
async def test_a_call_in_a_thread_without_a_loop_is_refused(call: str) -> None:
    """Two threads would take the same request ids, and an append that is in the log would be failed."""
    calls: dict[str, Callable[[], object]] = {
        "append_nowait": lambda: client.append_nowait(partition=0, data=b"x", on_done=lambda _: None),
        "feed": lambda: client.feed(0),
        "read_range": lambda: client.read_range(0, 0, 0),
    }
    log = InProcessLog(num_partitions=1)
    async with log.client() as client:
        await client.writable(0)
        with pytest.raises(UsageError, match="event loop of another thread"):
            await asyncio.to_thread(calls[call])
        assert not client.has_pending_transactions()
        await client.append(partition=0, data=b"y")
    assert [one.data for one in log.partition(0).transactions] == [b"y"]
    with pytest.raises(ClientClosedError):
        await asyncio.to_thread(calls[call])


def test_a_client_whose_loop_does_not_run_may_be_called() -> None:
    """Its thread has the loop in its hands."""
    log = InProcessLog(num_partitions=1)
    with asyncio.Runner() as runner:
        client = runner.run(log.client().__aenter__())
        runner.run(client.writable(0))
        pending = client.append_nowait(partition=0, data=b"x", on_done=lambda _: None)
        runner.run(client.flush_transactions())
        assert pending.committed
        runner.run(client.close())


async def test_the_blocking_client_may_be_used_in_a_program_with_a_loop() -> None:
    """Its own loop is that of its thread."""
    log = InProcessLog(num_partitions=1)
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        assert client.append(partition=0, data=b"x").transaction_id == 0
        assert client.client_id
        assert client.servers
        assert [one.transaction_id for one in client.feed(0, until=0)] == [0]
