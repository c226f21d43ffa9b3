"""The client for programs without an event loop: the same calls, blocking, from any thread.

The client runs on a loop in a thread of its own. Any thread may call any method at any time, also while
another one closes the client: then calls under way end with ClientClosedError. Callbacks, `on_done` and
`on_result` functions, header tests and transaction contexts run in the client's thread, must be short and
must not call this facade (that would wait for itself); `decide` of `transact` runs in a thread of its own. An
exit that one of them raises (`sys.exit`) is an error like any other: it would end the client's thread only.
A call that a signal handler interrupts (KeyboardInterrupt, or any exception that it raises) is cancelled in
the loop; a feed or range whose read was interrupted refuses to continue, as what it was to return is lost.
A signal handler may call the client and close it too, but not read a feed or range that it may have
interrupted: that would wait for itself.

A client belongs to the process that entered it. A fork copies it without its thread: there every call is
refused, and `close` does nothing at all. Nothing of the copy may be closed or unregistered in the child,
because the loop's selector and the sockets are the parent's too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload
from uuid import UUID

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.appender import Append
from waltz_client._internal.arguments import time_limit
from waltz_client._internal.blocking_reads import (
    BlockingDataFeed,
    BlockingDataRangeRead,
    BlockingFeed,
    BlockingRangeRead,
)
from waltz_client._internal.loop_thread import LoopThread, in_daemon_thread
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.client import SettingsSource, WaltzClient
from waltz_client.context import TransactionBuilder, TransactionContext
from waltz_client.errors import AppendError, ClientClosedError
from waltz_client.feed import HeaderTest
from waltz_client.observer import ClientObserver, ClientStatus
from waltz_client.ranges import BATCH_BYTES, BATCH_TRANSACTIONS
from waltz_client.serializers import Deserializer
from waltz_client.servers import ServerRequests
from waltz_client.transaction import Committed, Transacted
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.locks import LockId
from waltz_protocol.types import Endpoint

T = TypeVar("T")

__all__ = [
    "BlockingDataFeed",
    "BlockingDataRangeRead",
    "BlockingFeed",
    "BlockingRangeRead",
    "BlockingServerRequests",
    "BlockingWaltzClient",
]


class BlockingServerRequests:
    """See `waltz_client.servers.ServerRequests`."""

    def __init__(self, thread: LoopThread, requests: ServerRequests) -> None:
        self._thread = thread
        self._requests = requests

    def endpoints(self) -> list[Endpoint]:
        """The servers known now."""
        return self._thread.read(self._requests.endpoints)

    def storage_connectivity(
        self, server: Endpoint | str, *, deadline_seconds: float | None = None
    ) -> dict[str, bool]:
        """Which storage nodes the server reaches."""
        return self._thread.call(
            self._requests.storage_connectivity(server, deadline_seconds=deadline_seconds)
        )

    def partitions(self, server: Endpoint | str, *, deadline_seconds: float | None = None) -> list[int]:
        """The partitions the server holds."""
        return self._thread.call(self._requests.partitions(server, deadline_seconds=deadline_seconds))

    def health(self, server: Endpoint | str, *, deadline_seconds: float | None = None) -> dict[int, bool]:
        """Health of each partition the server holds."""
        return self._thread.call(self._requests.health(server, deadline_seconds=deadline_seconds))

    def add_preferred(
        self, server: Endpoint, partitions: Iterable[int], *, deadline_seconds: float | None = None
    ) -> bool:
        """Ask the server to prefer these partitions; false when it refuses."""
        return self._thread.call(
            self._requests.add_preferred(server, list(partitions), deadline_seconds=deadline_seconds)
        )

    def remove_preferred(
        self, server: Endpoint, partitions: Iterable[int], *, deadline_seconds: float | None = None
    ) -> bool:
        """Ask the server no longer to prefer these partitions; false when it refuses."""
        return self._thread.call(
            self._requests.remove_preferred(server, list(partitions), deadline_seconds=deadline_seconds)
        )


class BlockingWaltzClient:
    """`with BlockingWaltzClient.connect("client.yaml") as client: ...`; see `waltz_client.WaltzClient`, which
    has the same methods with the same parameters, errors and deadlines."""

    def __init__(self, make_client: Callable[[], WaltzClient]) -> None:
        """Use `connect`."""
        self._make_client = make_client
        self._client: WaltzClient | None = None
        self._closing = threading.RLock()  # a signal handler may close on top of a close
        self._thread = LoopThread()

    @classmethod
    def connect(
        cls,
        settings: SettingsSource,
        callbacks: WaltzClientCallbacks | None = None,
        *,
        store: Callable[[], ZooKeeperStore] | None = None,
        observers: Sequence[ClientObserver] = (),
        producer: str | None = None,
    ) -> Self:
        """A client to be entered with `with`. `store` (made on the client's loop) is for tests; `observers`
        are called on that loop."""
        return cls(
            lambda: WaltzClient.connect(
                settings,
                callbacks,
                store=None if store is None else store(),
                observers=observers,
                producer=producer,
            )
        )

    def __enter__(self) -> Self:
        self._thread.check_new()  # not in the try: it ends what another call has started
        try:
            self._thread.start()
            self._client = self._thread.call(self._open())
        except BaseException:
            self._thread.end()
            raise
        return self

    async def _open(self) -> WaltzClient:
        client = self._make_client()
        return await client.__aenter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, drain_seconds: float = 0.0) -> bool:
        """See `WaltzClient.close`; ends the thread. Idempotent. After a fork it leaves the parent's client
        alone."""
        if self._thread.in_other_process:
            return True
        self._thread.refuse_own_thread()
        drain_seconds = time_limit("drain_seconds", drain_seconds)
        client, ended = self._client, True
        if client is not None and drain_seconds <= 0:
            with contextlib.suppress(ClientClosedError):  # another thread's close has ended
                ended = self._thread.call(client.close())  # and cuts off a drain of another thread
        with self._closing:
            client = self._client
            if client is not None:
                try:
                    ended = self._thread.call(client.close(drain_seconds=drain_seconds)) and ended
                except ClientClosedError:  # the thread has ended, and with it the client
                    ended = False
                finally:
                    self._client = None
                    self._thread.end()
        return ended

    @property
    def _open_client(self) -> WaltzClient:
        self._thread.refuse_other_process()
        client = self._client
        self._thread.refuse_failed()
        if client is None:
            self._thread.refuse_new("with BlockingWaltzClient.connect(...) as client")
            raise self._thread.closed_error()
        return client

    def _call(self, coro: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(coro)

    @property
    def client_id(self) -> int:
        """See `WaltzClient.client_id`."""
        return self._open_client.client_id

    @property
    def producer_epoch(self) -> int | None:
        """See `WaltzClient.producer_epoch`."""
        return self._open_client.producer_epoch

    def last_sequence(self, partition: int, *, deadline_seconds: float | None = None) -> int:
        """See `WaltzClient.last_sequence`."""
        return self._call(self._open_client.last_sequence(partition, deadline_seconds=deadline_seconds))

    @property
    def cluster_name(self) -> str:
        """See `WaltzClient.cluster_name`."""
        return self._open_client.cluster_name

    @property
    def cluster_key(self) -> UUID | None:
        """See `WaltzClient.cluster_key`."""
        return self._open_client.cluster_key

    @property
    def num_partitions(self) -> int:
        """See `WaltzClient.num_partitions`."""
        return self._open_client.num_partitions

    def status(self) -> ClientStatus:
        """See `WaltzClient.status`."""
        return self._open_client.status()

    def partition_for(self, key: str | bytes) -> int:
        """See `WaltzClient.partition_for`."""
        return self._open_client.partition_for(key)

    def high_water_mark(self, partition: int, *, deadline_seconds: float | None = None) -> int:
        """See `WaltzClient.high_water_mark`."""
        return self._call(self._open_client.high_water_mark(partition, deadline_seconds=deadline_seconds))

    @overload
    def get_data(
        self, partition: int, transaction_id: int, *, deadline_seconds: float | None = None
    ) -> bytes: ...
    @overload
    def get_data(
        self,
        partition: int,
        transaction_id: int,
        serializer: Deserializer[T],
        *,
        deadline_seconds: float | None = None,
    ) -> T: ...
    def get_data(
        self,
        partition: int,
        transaction_id: int,
        serializer: Deserializer[T] | None = None,
        *,
        deadline_seconds: float | None = None,
    ) -> bytes | T:
        """See `WaltzClient.get_data`."""
        get = self._open_client.get_data
        if serializer is None:
            return self._call(get(partition, transaction_id, deadline_seconds=deadline_seconds))
        return self._call(get(partition, transaction_id, serializer, deadline_seconds=deadline_seconds))

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
        sequence: int | None = None,
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
                sequence=sequence,
            )
        )

    def append_nowait(
        self,
        *,
        partition: int,
        data: bytes,
        on_done: Callable[[PendingAppend], object],
        header: int = 0,
        write_locks: Iterable[LockId] = (),
        read_locks: Iterable[LockId] = (),
        append_locks: Iterable[LockId] = (),
        as_of: int | None = None,
        context: object = None,
        sequence: int | None = None,
    ) -> PendingAppend:
        """See `WaltzClient.append_nowait`; `on_done` runs in the client's thread. Returns when it is sent."""
        client = self._open_client

        async def send() -> PendingAppend:
            return client.append_nowait(
                partition=partition,
                data=data,
                on_done=on_done,
                header=header,
                write_locks=write_locks,
                read_locks=read_locks,
                append_locks=append_locks,
                as_of=as_of,
                context=context,
                sequence=sequence,
            )

        return self._call(send())

    def writable(self, partition: int, *, deadline_seconds: float | None = None) -> None:
        """See `WaltzClient.writable`."""
        self._call(self._open_client.writable(partition, deadline_seconds=deadline_seconds))

    def append_many(
        self,
        appends: Iterable[Append],
        *,
        on_result: Callable[[Append, Committed | AppendError], object] | None = None,
        deadline_seconds: float | None = None,
    ) -> Sequence[Committed | AppendError]:
        """See `WaltzClient.append_many`; the iterable is read before the first one is sent, in the calling
        thread."""
        return self._call(
            self._open_client.append_many(
                list(appends), on_result=on_result, deadline_seconds=deadline_seconds
            )
        )

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
            return await in_daemon_thread(decide, builder)

        return self._call(self._open_client.transact(partition, in_thread, deadline_seconds=deadline_seconds))

    def flush_transactions(self, *, deadline_seconds: float | None = None) -> None:
        """See `WaltzClient.flush_transactions`."""
        self._call(self._open_client.flush_transactions(deadline_seconds=deadline_seconds))

    def has_pending_transactions(self) -> bool:
        """See `WaltzClient.has_pending_transactions`."""
        return self._thread.read(self._open_client.has_pending_transactions)

    def set_partitions(self, partitions: Iterable[int], *, deadline_seconds: float = 10.0) -> None:
        """See `WaltzClient.set_partitions`."""
        self._call(self._open_client.set_partitions(list(partitions), deadline_seconds=deadline_seconds))

    def get_partitions(self) -> list[int]:
        """See `WaltzClient.get_partitions`."""
        return self._thread.read(self._open_client.get_partitions)

    def endpoint_of(self, partition: int) -> Endpoint | None:
        """See `WaltzClient.endpoint_of`."""
        return self._open_client.endpoint_of(partition)

    @property
    def servers(self) -> BlockingServerRequests:
        """See `WaltzClient.servers`."""
        client = self._open_client
        return BlockingServerRequests(self._thread, self._thread.read(lambda: client.servers))

    @overload
    def feed(
        self,
        partitions: int | Iterable[int],
        *,
        after: int | Mapping[int, int | None] | None = -1,
        with_data: Literal[True] = True,
        headers_only: Literal[False] = False,
        where: HeaderTest | None = None,
        until: int | Mapping[int, int] | None = None,
    ) -> BlockingDataFeed: ...
    @overload
    def feed(
        self,
        partitions: int | Iterable[int],
        *,
        after: int | Mapping[int, int | None] | None = -1,
        with_data: bool | HeaderTest = True,
        headers_only: bool = False,
        where: HeaderTest | None = None,
        until: int | Mapping[int, int] | None = None,
    ) -> BlockingFeed: ...
    def feed(
        self,
        partitions: int | Iterable[int],
        *,
        after: int | Mapping[int, int | None] | None = -1,
        with_data: bool | HeaderTest = True,
        headers_only: bool = False,
        where: HeaderTest | None = None,
        until: int | Mapping[int, int] | None = None,
    ) -> BlockingFeed:
        """See `WaltzClient.feed`."""
        client = self._open_client

        async def begin() -> BlockingFeed:
            feed = client.feed(
                partitions,
                after=after,
                with_data=with_data,
                headers_only=headers_only,
                where=where,
                until=until,
            )
            return BlockingFeed(self._thread, feed)

        return self._call(begin())

    @overload
    def read_range(
        self,
        partition: int,
        first: int,
        last: int,
        *,
        with_data: Literal[True] = True,
        where: HeaderTest | None = None,
        batch_transactions: int = BATCH_TRANSACTIONS,
        batch_bytes: int = BATCH_BYTES,
        timeout_seconds: float = 60.0,
    ) -> BlockingDataRangeRead: ...
    @overload
    def read_range(
        self,
        partition: int,
        first: int,
        last: int,
        *,
        with_data: bool = True,
        where: HeaderTest | None = None,
        batch_transactions: int = BATCH_TRANSACTIONS,
        batch_bytes: int = BATCH_BYTES,
        timeout_seconds: float = 60.0,
    ) -> BlockingRangeRead: ...
    def read_range(
        self,
        partition: int,
        first: int,
        last: int,
        *,
        with_data: bool = True,
        where: HeaderTest | None = None,
        batch_transactions: int = BATCH_TRANSACTIONS,
        batch_bytes: int = BATCH_BYTES,
        timeout_seconds: float = 60.0,
    ) -> BlockingRangeRead:
        """See `WaltzClient.read_range`."""
        client = self._open_client

        async def begin() -> BlockingRangeRead:
            read = client.read_range(
                partition,
                first,
                last,
                with_data=with_data,
                where=where,
                batch_transactions=batch_transactions,
                batch_bytes=batch_bytes,
                timeout_seconds=timeout_seconds,
            )
            return BlockingRangeRead(self._thread, read)

        return self._call(begin())
