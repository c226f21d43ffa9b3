"""The client for programs without an event loop: the same calls, blocking, from any thread.

The client runs on a loop in a thread of its own. Callbacks, `on_result` functions and transaction contexts
run in that thread and must not call this facade (that would wait for itself). An interrupted call
(KeyboardInterrupt) is cancelled in the loop.

A client belongs to the process that entered it. A fork copies it without its thread: there every call is
refused, and `close` does nothing at all. Nothing of the copy may be closed or unregistered in the child,
because the loop's selector and the sockets are the parent's too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from waltz_client._internal.appender import Append
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.client import SettingsSource, WaltzClient
from waltz_client.context import TransactionBuilder, TransactionContext
from waltz_client.errors import AppendError, ClientClosedError, UsageError
from waltz_client.feed import Feed, HeaderTest
from waltz_client.transaction import Committed, FeedTransaction, Transacted
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.locks import LockId

T = TypeVar("T")


class BlockingWaltzClient:
    """`with BlockingWaltzClient.connect("client.yaml") as client: ...`; see
    `waltz_client.WaltzClient`."""

    def __init__(self, make_client: Callable[[], WaltzClient]) -> None:
        """Use `connect`."""
        self._make_client = make_client
        self._client: WaltzClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process_id: int | None = None  # of the process that entered it
        self._stop: Callable[[], object] = lambda: None
        self._lock = threading.Lock()  # no call is handed to a loop that is about to end
        self._calls: set[concurrent.futures.Future[Any]] = set()

    @classmethod
    def connect(
        cls,
        settings: SettingsSource,
        callbacks: WaltzClientCallbacks | None = None,
        *,
        store: Callable[[], ZooKeeperStore] | None = None,
    ) -> Self:
        """A client to be entered with `with`. `store` (made on the client's loop) is for tests."""
        return cls(lambda: WaltzClient.connect(settings, callbacks, store=None if store is None else store()))

    def __enter__(self) -> Self:
        self._refuse_other_process()
        if self._thread is not None:
            raise UsageError("a client is entered once; connect again for another one")
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()

        def run() -> None:
            with asyncio.Runner() as runner:
                loop = runner.get_loop()
                stop = loop.create_future()

                def end() -> None:
                    if not stop.done():
                        stop.set_result(None)

                self._stop = lambda: loop.call_soon_threadsafe(end)

                async def serve() -> None:
                    started.set_result(loop)
                    await stop

                runner.run(serve())

        self._process_id = os.getpid()
        self._thread = threading.Thread(target=run, name="waltz-client", daemon=True)
        self._thread.start()
        self._loop = started.result()
        try:
            self._client = self._call(self._open())
        except BaseException:
            self._end_thread()
            raise
        return self

    async def _open(self) -> WaltzClient:
        client = self._make_client()
        return await client.__aenter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See `WaltzClient.close`; ends the thread. Idempotent. After a fork it leaves the parent's client
        alone."""
        if self._in_other_process():
            return
        self._refuse_own_thread()
        client, self._client = self._client, None
        if client is not None:
            try:
                self._call(client.close())
            finally:
                self._end_thread()

    def _end_thread(self) -> None:
        with self._lock:
            thread, self._loop = self._thread, None
        if thread is not None:
            self._stop()
            thread.join()
        for future in list(self._calls):  # handed over too late to be worked off
            if not future.done():
                future.set_exception(ClientClosedError("the client is closed"))

    def _in_other_process(self) -> bool:
        return self._process_id is not None and self._process_id != os.getpid()

    def _refuse_other_process(self) -> None:
        if self._in_other_process():
            raise UsageError("this client was opened in another process: open a new one after the fork")

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError("a blocking call from the client's own thread would wait for itself")

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        try:
            self._refuse_other_process()  # before the lock: a thread that the child does not have may hold it
            self._refuse_own_thread()
            with self._lock:
                if self._loop is None or self._loop.is_closed():
                    raise ClientClosedError("the client is closed")
                future = asyncio.run_coroutine_threadsafe(coro, self._loop)
                self._calls.add(future)
        except BaseException:
            coro.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosedError("the client was closed") from None
        except BaseException:
            future.cancel()
            raise
        finally:
            self._calls.discard(future)

    @property
    def _open_client(self) -> WaltzClient:
        self._refuse_other_process()
        if self._client is None:
            raise ClientClosedError("the client is closed")
        return self._client

    @property
    def client_id(self) -> int:
        """See `WaltzClient.client_id`."""
        return self._open_client.client_id

    @property
    def cluster_name(self) -> str:
        """See `WaltzClient.cluster_name`."""
        return self._open_client.cluster_name

    @property
    def num_partitions(self) -> int:
        """See `WaltzClient.num_partitions`."""
        return self._open_client.num_partitions

    def partition_for(self, key: str | bytes) -> int:
        """See `WaltzClient.partition_for`."""
        return self._open_client.partition_for(key)

    def high_water_mark(self, partition: int, *, deadline_seconds: float | None = None) -> int:
        """See `WaltzClient.high_water_mark`."""
        return self._call(self._open_client.high_water_mark(partition, deadline_seconds=deadline_seconds))

    def get_data(
        self, partition: int, transaction_id: int, *, deadline_seconds: float | None = None
    ) -> bytes:
        """See `WaltzClient.get_data`."""
        return self._call(
            self._open_client.get_data(partition, transaction_id, deadline_seconds=deadline_seconds)
        )

    def append(
        self,
        *,
        partition: int,
        data: bytes,
        header: int = 0,
        write_locks: Iterable[LockId] = (),
        read_locks: Iterable[LockId] = (),
        append_locks: Iterable[LockId] = (),
        as_of: int | None = None,
        deadline_seconds: float | None = None,
        max_attempts: int | None = None,
    ) -> Committed:
        """See `WaltzClient.append`."""
        return self._call(
            self._open_client.append(
                partition=partition,
                data=data,
                header=header,
                write_locks=write_locks,
                read_locks=read_locks,
                append_locks=append_locks,
                as_of=as_of,
                deadline_seconds=deadline_seconds,
                max_attempts=max_attempts,
            )
        )

    def append_many(
        self, appends: Iterable[Append], *, deadline_seconds: float | None = None
    ) -> Sequence[Committed | AppendError]:
        """See `WaltzClient.append_many`."""
        return self._call(self._open_client.append_many(list(appends), deadline_seconds=deadline_seconds))

    def submit(self, context: TransactionContext) -> None:
        """See `WaltzClient.submit`; the context's methods run in the client's thread."""
        self._call(self._open_client.submit(context))

    def transact(
        self,
        partition: int,
        decide: Callable[[TransactionBuilder], T],
        *,
        deadline_seconds: float | None = None,
    ) -> Transacted[T]:
        """See `WaltzClient.transact`. `decide` is a plain function; it runs in a thread of its own and may
        block."""

        async def in_thread(builder: TransactionBuilder) -> T:
            return await asyncio.to_thread(decide, builder)

        return self._call(self._open_client.transact(partition, in_thread, deadline_seconds=deadline_seconds))

    def flush_transactions(self, *, deadline_seconds: float | None = None) -> None:
        """See `WaltzClient.flush_transactions`."""
        self._call(self._open_client.flush_transactions(deadline_seconds=deadline_seconds))

    def has_pending_transactions(self) -> bool:
        """See `WaltzClient.has_pending_transactions`."""
        return self._open_client.has_pending_transactions()

    def set_partitions(self, partitions: Iterable[int]) -> None:
        """See `WaltzClient.set_partitions`."""
        self._call(self._open_client.set_partitions(list(partitions)))

    def get_partitions(self) -> list[int]:
        """See `WaltzClient.get_partitions`."""
        return self._open_client.get_partitions()

    def feed(
        self,
        partitions: int | Iterable[int],
        *,
        after: int | Mapping[int, int | None] | None = -1,
        with_data: bool | HeaderTest = True,
        headers_only: bool = False,
        where: HeaderTest | None = None,
        until: int | Mapping[int, int] | None = None,
    ) -> Iterator[FeedTransaction]:
        """See `WaltzClient.feed`; a generator, closed when it is dropped or `close()`d."""
        client = self._open_client

        async def begin() -> Feed:
            return client.feed(
                partitions,
                after=after,
                with_data=with_data,
                headers_only=headers_only,
                where=where,
                until=until,
            )

        feed = self._call(begin())
        batches = feed.batches()

        async def next_batch() -> list[FeedTransaction]:
            return await anext(batches, [])

        def transactions() -> Iterator[FeedTransaction]:
            try:
                while batch := self._call(next_batch()):
                    yield from batch
            finally:
                if self._loop is not None and self._client is not None and not self._in_other_process():
                    self._call(feed.aclose())

        return transactions()
