"""WaltzClient: the public face of the client.

Two ways to use it. *Plain*: `await client.append(...)` and `async for transaction in client.feed(...)`.
*Callbacks*: give callbacks that apply committed transactions to the application's state, and `submit`
transaction contexts that build on it (docs/applications.md). One client object serves both and all
partitions; it belongs to the event loop that entered it (on another one: UsageError). `waltz_client.blocking`
has the same for programs without one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from types import TracebackType
from typing import Literal, Self, TypeVar, overload
from uuid import UUID

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import append_request
from waltz_client._internal.appender import Append
from waltz_client._internal.arguments import call_deadline, time_limit
from waltz_client._internal.connections import Connections
from waltz_client._internal.core import ClientCore
from waltz_client._internal.directory.discovery import DirectoryDiscovery
from waltz_client._internal.discovery import Discovery
from waltz_client._internal.edge import client_errors
from waltz_client._internal.link import Connector, LinkSettings
from waltz_client._internal.mock_driver import MOCK_DRIVER, MockDriver
from waltz_client._internal.open_feed import open_feed
from waltz_client._internal.producer_start import begin_producer
from waltz_client._internal.transact import D, Decide
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.context import TransactionBuilder, TransactionContext
from waltz_client.errors import AppendError, ClientClosedError, RequestDeadlineError, UsageError
from waltz_client.feed import Feed, HeaderTest
from waltz_client.observer import ClientObserver, ClientStatus
from waltz_client.ranges import BATCH_BYTES, BATCH_TRANSACTIONS, RangeRead
from waltz_client.serializers import Deserializer, value_of
from waltz_client.servers import ServerRequests
from waltz_client.settings import ClientSettings
from waltz_client.transaction import Committed, Transacted
from waltz_client.with_data import DataFeed, DataRangeRead
from waltz_cluster.config.files import flatten
from waltz_cluster.manager import ClusterManager
from waltz_cluster.producers import check_name
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.channel import ChannelSettings
from waltz_protocol.aio.connector import connect
from waltz_protocol.aio.tls import client_context
from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import Magic
from waltz_protocol.keys import partition_for
from waltz_protocol.locks import LockId
from waltz_protocol.types import Endpoint

T = TypeVar("T")

SettingsSource = ClientSettings | Mapping[str, object] | str | os.PathLike[str]
PROTOCOL_VERSIONS = CLIENT.versions


class WaltzClient:
    """`async with WaltzClient.connect("client.yaml") as client: ...`

    Leaving the block (or `close`) ends everything at once: appends without an outcome end as unknown. Await
    `close(drain_seconds=...)` as the last statement of the block to let what is under way end first.
    What it does is done on the event loop that entered it; elsewhere it is refused (UsageError).
    """

    def __init__(
        self,
        settings: ClientSettings,
        callbacks: WaltzClientCallbacks | None = None,
        *,
        store: ZooKeeperStore | None = None,
        discovery: Discovery | None = None,
        random: Random | None = None,
        wall_clock: Callable[[], float] = time.time,
        connector: Connector = connect,
        observers: Sequence[ClientObserver] = (),
        producer: str | None = None,
    ) -> None:
        """Use `connect`. `store`, `discovery`, `random`, `wall_clock` and `connector` are for
        tests and simulation. `random` must give no two clients the same numbers: their request ids start
        from it."""
        self._settings = settings
        self._callbacks = callbacks
        self._store = store
        self._discovery = discovery
        self._random = Random() if random is None else random
        self._wall_clock = wall_clock
        self._connector = connector
        self._observers = tuple(observers)
        self._producer_name = None if producer is None else check_name(producer)
        self._stack = AsyncExitStack()
        self._closing = asyncio.Lock()
        self._core: ClientCore | None = None
        self._closed = False

    @classmethod
    @client_errors()
    def connect(
        cls,
        settings: SettingsSource,
        callbacks: WaltzClientCallbacks | None = None,
        *,
        store: ZooKeeperStore | None = None,
        discovery: Discovery | None = None,
        random: Random | None = None,
        observers: Sequence[ClientObserver] = (),
        producer: str | None = None,
    ) -> Self:
        """A client to be entered with `async with`; `settings` is a ClientSettings, a mapping or the path
        of a file. A mapping may hold a log for tests as `client.mockDriver` (see `waltz_client.testing`)
        and nothing else then. `observers` are informed of what happens inside (`waltz_client.observer`).
        `producer` is a name under which appends are written once, over restarts of the application too: each
        has a sequence number then (see `append`).

        Entering reaches ZooKeeper, or with `servers` one of these, and takes a client id; servers are
        connected to when needed. Errors, each one line: ConfigError (settings), TlsSettingsError (key files),
        ConnectError (ZooKeeper absent; no server of `servers` gave a directory or an id, and why),
        AuthError (its credentials), ClusterNotFoundError (root missing), ConnectionLostError (try again),
        ClusterDataError.
        """
        if isinstance(settings, Mapping):
            flat = flatten({str(key): value for key, value in settings.items()}, source="settings")
            driver = flat.pop(MOCK_DRIVER, None)
            if isinstance(driver, MockDriver):
                return cls(
                    ClientSettings.load(driver.client_settings(flat)),
                    callbacks,
                    discovery=driver,
                    random=driver.random if random is None else random,
                    connector=driver.connect,
                    observers=observers,
                    producer=producer,
                )
        return cls(
            ClientSettings.load(settings),
            callbacks,
            store=store,
            discovery=discovery,
            random=random,
            observers=observers,
            producer=producer,
        )

    # -- life ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._core is not None:
            raise UsageError("a client is entered once; connect again for another one")
        with client_errors():
            await self._enter()
        if self._closed:
            await self.close()
            raise ClientClosedError("the client was closed while it was entered")
        return self

    async def _enter(self) -> None:
        settings = self._settings
        seconds = settings.connect_timeout_ms / 1000
        expander = settings.block_expander()
        connections = Connections(self._connector)
        link_settings = LinkSettings(
            channel=ChannelSettings(
                magic=Magic.CLIENT,
                versions=tuple(v for v in PROTOCOL_VERSIONS if v <= settings.max_protocol_version),
                hello_text="Waltz Client",
                max_frame_bytes=settings.max_frame_bytes,
                handshake_timeout_seconds=seconds,
            ),
            tls=client_context(settings.tls_settings("client.ssl")),
            connect_timeout_seconds=seconds,
            connect=connections.connect,
        )
        async with AsyncExitStack() as stack:
            stack.push_async_exit(connections.wait_gone)  # what is entered first ends last
            discovery = self._discovery
            if discovery is None:
                discovery = await self._discover(stack, link_settings)
            name = self._producer_name
            producer = None
            if name is not None:
                producer = await begin_producer(name, settings, discovery, link_settings, self._random)
            core = ClientCore(
                settings,
                discovery,
                await discovery.new_client_id() if producer is None else producer.client_id,
                self._callbacks,
                link_settings,
                self._random,
                self._wall_clock,
                self._observers,
                producer,
                expander,
            )
            stack.push_async_callback(core.close)
            core.start()
            self._core = core
            self._stack = stack.pop_all()

    async def _discover(self, stack: AsyncExitStack, link_settings: LinkSettings) -> Discovery:
        settings = self._settings
        if settings.servers:
            return await stack.enter_async_context(
                DirectoryDiscovery(settings.servers, link_settings, self._random, settings.cluster_key)
            )
        store = self._store
        if store is None:
            from waltz_cluster import zk_client  # only here: tests and simulation bring their own store

            store = await zk_client.connect(self._settings, gives_up=True)
            stack.push_async_callback(store.close)
        return await stack.enter_async_context(
            ClusterManager(store, self._settings.cluster_root, rng=self._random)
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._core is not None:
                await self._core.drained()  # a close elsewhere, such as of a signal handler, is not cut off
        finally:
            await self.close()

    async def close(self, *, drain_seconds: float = 0.0) -> bool:
        """End the client, after what is under way has ended, but not later than in `drain_seconds`.

        Until then no new append is taken (ClientClosedError), and waited for are: appends that have no
        outcome or are retried, `append_many`, `transact`, and transaction contexts until they are applied.
        Then feeds and waiting writers get ClientClosedError, and appends that are still pending
        OutcomeUnknownError. Returns whether nothing was cut off. Cancelling it ends the client at once, and
        so does another close without a drain. In a callback, or in `decide`, it waits for itself.
        """
        drain_seconds = time_limit("drain_seconds", drain_seconds)
        if self._core is not None:
            self._core.life.check_loop()
        ended = self._closed = True
        try:
            if self._core is not None and not self._core.life.closed:
                ended = await self._core.drain(drain_seconds)
        finally:
            async with self._closing:
                await self._stack.aclose()
        return ended

    @property
    def _entered(self) -> ClientCore:
        if self._core is None:
            raise UsageError("enter the client first: async with WaltzClient.connect(...) as client")
        return self._core

    @property
    def _open(self) -> ClientCore:
        core = self._entered
        core.life.check_open()
        return core

    @property
    def _here(self) -> ClientCore:
        core = self._open
        core.life.check_loop()
        return core

    # -- facts -----------------------------------------------------------------------------------------------

    def status(self) -> ClientStatus:
        """The client and its partitions now, for health pages and metrics; may be asked on any thread.
        ClientClosedError."""
        return self._open.status

    @property
    def client_id(self) -> int:
        """The cluster-wide id of this client object; never used again after it."""
        return self._open.client_id

    @property
    def producer_epoch(self) -> int | None:
        """The number of this instance of the named producer, 1 for the first one; None without a name."""
        producer = self._open.producer
        return None if producer is None else producer.epoch

    @property
    def cluster_name(self) -> str:
        """Name of the cluster."""
        return self._open.cluster_name

    @property
    def cluster_key(self) -> UUID | None:
        """Key of the cluster, the one its storage nodes carry; None unless the settings name `servers`."""
        return self._open.cluster_key

    @property
    def num_partitions(self) -> int:
        """Number of partitions of the cluster; fixed when the client was opened."""
        return self._open.partitions.count

    def partition_for(self, key: str | bytes) -> int:
        """The partition of a key in this cluster, the same for every client (see
        `waltz_client.partition_for`)."""
        return partition_for(key, self.num_partitions)

    @property
    def servers(self) -> ServerRequests:
        """Administrative requests to single servers."""
        core = self._here
        return ServerRequests(core.partitions, core.rpc, core.client_id, self._settings.request_deadline_ms)

    async def high_water_mark(self, partition: int, *, deadline_seconds: float | None = None) -> int:
        """Id of the last committed transaction as its server says, -1 for an empty log; an older one for a
        moment from a server that does not know yet that it is replaced. RequestDeadlineError."""
        partitions = self._here.partitions
        partition = partitions.check(partition)
        return await partitions.server_high_water_mark(partition, deadline_seconds)

    @overload
    async def get_data(
        self, partition: int, transaction_id: int, *, deadline_seconds: float | None = None
    ) -> bytes: ...
    @overload
    async def get_data(
        self,
        partition: int,
        transaction_id: int,
        serializer: Deserializer[T],
        *,
        deadline_seconds: float | None = None,
    ) -> T: ...
    async def get_data(
        self,
        partition: int,
        transaction_id: int,
        serializer: Deserializer[T] | None = None,
        *,
        deadline_seconds: float | None = None,
    ) -> bytes | T:
        """The payload of one transaction. TransactionNotFoundError above the high-water mark,
        RequestDeadlineError, PayloadError when the serializer cannot read it."""
        data = await self._here.partitions.get_data(partition, transaction_id, deadline_seconds)
        return data if serializer is None else value_of(data, serializer, partition, transaction_id)

    async def last_sequence(self, partition: int, *, deadline_seconds: float | None = None) -> int:
        """The highest sequence number of the named producer in a partition, -1 when there is none: of all
        that its instances had under way when this one mounted it, and of what came since.

        The first call reads request ids from the last checkpoint on (`client.producerCheckpointInterval`),
        which takes as long as the log has grown since. A lower number is not in the log if its append failed
        and was not repeated. RequestDeadlineError (with how far it got), UsageError without a name.
        """
        core = self._here
        if core.producer is None:
            raise UsageError(
                "only a named producer has sequence numbers: WaltzClient.connect(..., producer=name)"
            )
        seconds = call_deadline(deadline_seconds, self._settings.request_deadline_ms)
        return await core.partitions.last_sequence(core.producer, partition, seconds)

    # -- appends ---------------------------------------------------------------------------------------------

    async def append(
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
        """Append one transaction and wait until it is committed.

        `sequence`: of a client that was opened with the name of a producer, and only then, the number of
        this append in its partition, 0 to 2^31 - 1. Under one number there is one transaction, whichever
        instance of the producer sends it and how often: the same header and data are answered with the id
        that they have. Locks are checked only if it is not in the log yet. So after any error or crash but
        SequenceInUseError the call may be repeated as it was.

        Write and read locks are checked against `as_of`, the id of the last transaction the caller's decision
        has taken into account (None: everything this client has received, or applied through its callbacks).
        A certain failure other than by a lock (a server moved or dropped it) is retried with growing, spread
        delays until the deadline (default `client.appendDeadline`) or `max_attempts`. With write or read
        locks a retry keeps the view of the first attempt, so a commit by others in between is a conflict. An
        `as_of` beyond what this client has received or a server has named is held against the server's
        high-water mark first.

        Raises LockConflictError (read up to its mark and decide again), ViewAheadError (the log ends before
        `as_of`), AppendFailedError, DeadlineExceededError: certainly not in the log; OutcomeUnknownError:
        sent, but the deadline came first. TransactionTooLargeError, PartitionNotFoundError,
        PartitionInactiveError, ClientAheadError, ClientClosedError, UsageError: nothing was sent (the
        first may come from the server, see its `outcome`). Cancelling it leaves the outcome unknown. Of a
        named producer also SequenceInUseError, ProducerFencedError (a newer instance has begun) and
        SequenceUnsupportedError.
        """
        core = self._entered
        request = append_request(
            self._settings, partition, data, header, write_locks, read_locks, append_locks, as_of, sequence
        )
        with core.life.append_call():
            return await core.appender.append(request, deadline_seconds, max_attempts)

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
        """Send one append now, without a task or a future; `on_done(pending)` is called on the loop with
        its outcome.

        `pending.committed`, `.transaction_id`, `.error`, `.context`. No retry, no deadline. WindowFullError
        when `client.maxConcurrentTransactions` or `client.maxConcurrentBytes` are on their way, or others
        have waited for what is free now (wait with `writable`), PartitionUnavailableError when it is not
        mounted, ViewAheadError when `as_of` is beyond what this client has received or a server has named:
        nothing was sent.
        """
        core = self._entered
        request = append_request(
            self._settings, partition, data, header, write_locks, read_locks, append_locks, as_of, sequence
        )
        core.life.check_not_closing()
        return core.appender.append_nowait(request, context, on_done)

    async def writable(self, partition: int, *, deadline_seconds: float | None = None) -> None:
        """Wait until an append to the partition can be sent; RequestDeadlineError. Also a way to mount it
        beforehand."""
        partitions = self._here.partitions
        partition = partitions.check(partition)
        if deadline_seconds is not None:
            deadline_seconds = time_limit("deadline_seconds", deadline_seconds)
        try:
            async with asyncio.timeout(deadline_seconds):
                await partitions.use(partition).wait_writable()
        except TimeoutError:
            raise RequestDeadlineError(
                f"partition {partition} was not available within {deadline_seconds:g} s: {partitions.why_unavailable(partition)}"
            ) from None

    async def append_many(
        self,
        appends: Iterable[Append],
        *,
        on_result: Callable[[Append, Committed | AppendError], object] | None = None,
        deadline_seconds: float | None = None,
    ) -> Sequence[Committed | AppendError]:
        """Append many in a pipeline, as many at a time as `client.maxConcurrentTransactions` and
        `client.maxConcurrentBytes` allow per partition.

        Results come in the order of `appends` (and to `on_result` as they are known): Committed, or the
        error `append` would raise (as AppendFailedError where that is not an AppendError). Nothing is
        retried, so the committed ones of a partition are in the order given. At the deadline what is on its
        way is an OutcomeUnknownError, the one that was to be sent next a DeadlineExceededError, and appends
        not taken from the iterable yet have no result. What the iterable raises is raised.
        """
        core = self._entered
        with core.life.append_call():
            return await core.appender.append_many(appends, on_result, deadline_seconds)

    # -- feeds -----------------------------------------------------------------------------------------------

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
    ) -> DataFeed: ...
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
    ) -> Feed: ...
    def feed(
        self,
        partitions: int | Iterable[int],
        *,
        after: int | Mapping[int, int | None] | None = -1,
        with_data: bool | HeaderTest = True,
        headers_only: bool = False,
        where: HeaderTest | None = None,
        until: int | Mapping[int, int] | None = None,
    ) -> Feed:
        """Committed transactions of one or several partitions, in id order within each.

        `after`: id of the last transaction already seen, for all or per partition; -1 = from the beginning,
        None = only what commits from now on (where the partition's server is away: what this client has not
        received yet). `until`: stop after this id (default: follow forever). A mapping
        names each of the partitions. `where(header)` leaves out transactions by their header before their
        payload is asked for: `where=HeaderNamespace("ledger").owns` for a partition that others write to as
        well. `headers_only` (or `with_data=False`) leaves all payloads out: no request per transaction;
        `with_data(header)` says whose payload is wanted.
        """
        wanted = False if headers_only else with_data
        return open_feed(self._here, self._settings, partitions, after, wanted, where, until)

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
    ) -> DataRangeRead: ...
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
    ) -> RangeRead: ...
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
    ) -> RangeRead:
        """Exactly the committed transactions `first` to `last` (both included) of a partition, in order,
        in large batches.

        `where(header)` leaves out transactions by their header before their payload is asked for. A batch
        has about `batch_transactions` or `batch_bytes` of payload, whichever is less; two of them are
        read ahead. Moves, lost connections and failing reads are waited for; when nothing at all was read for
        `timeout_seconds`: RequestDeadlineError, or TransactionNotFoundError when the log ends before
        `last`. ClientClosedError.
        """
        core = self._here
        partition = core.partitions.check(partition)
        return RangeRead(
            core.partitions,
            core.rpc,
            partition,
            first,
            last,
            with_data=with_data,
            where=where,
            batch_transactions=batch_transactions,
            batch_bytes=batch_bytes,
            buffer_transactions=self._settings.feed_buffer_transactions,
            timeout_seconds=timeout_seconds,
        )

    # -- the application contract ----------------------------------------------------------------------------

    async def submit(self, context: TransactionContext) -> None:
        """Run a transaction context until it ends (see there). Returns when the first attempt is sent or has
        ended it.

        An error of the first attempt goes to `on_exception` and is raised here.
        """
        core = self._here
        core.check_unnumbered()
        with core.life.append_call():
            await core.submissions.submit(context)

    @overload
    async def transact(
        self,
        partition: int,
        decide: Callable[[TransactionBuilder], Awaitable[D]],
        *,
        deadline_seconds: float | None = None,
    ) -> Transacted[D]: ...
    @overload
    async def transact(
        self,
        partition: int,
        decide: Callable[[TransactionBuilder], D],
        *,
        deadline_seconds: float | None = None,
    ) -> Transacted[D]: ...
    async def transact(
        self, partition: int, decide: Decide[D], *, deadline_seconds: float | None = None
    ) -> Transacted[D]:
        """Decide on what is applied, append it, and return when it is applied here; after a lock conflict
        decide again.

        `decide(builder)`, a plain or a coroutine function, runs once per attempt, when this client's
        callbacks (if it has any) have applied everything that the locks will be checked against; a run that
        finds another transaction of this client on its way under one of its locks is no attempt. It fills
        the builder, or leaves it without a payload when nothing is to be appended; what it returns is
        `Transacted.value`. A plain one must not block the loop. `deadline_seconds` (default
        `client.appendDeadline`) is for all attempts and the application together.

        Raises what `decide` raises; DeadlineExceededError, AttemptsExhaustedError: certainly not in the log;
        OutcomeUnknownError: it may be; NotAppliedError: committed, but not applied here in time. Otherwise
        as `append` and `submit`. Cancelling it begins no further attempt and leaves the outcome unknown.
        """
        seconds = call_deadline(deadline_seconds, self._settings.append_deadline_ms)
        core = self._here
        partition = core.partitions.check(partition)
        core.check_unnumbered()
        with core.life.append_call():
            return await core.submissions.transact(partition, decide, seconds)

    async def flush_transactions(self, *, deadline_seconds: float | None = None) -> None:
        """Wait until every append sent so far has an outcome (retries that follow not included).
        RequestDeadlineError."""
        partitions = self._here.partitions
        if deadline_seconds is not None:
            deadline_seconds = time_limit("deadline_seconds", deadline_seconds)
        try:
            async with asyncio.timeout(deadline_seconds), asyncio.TaskGroup() as group:
                for partition in partitions.streams.values():
                    group.create_task(partition.flush())
        except TimeoutError:
            raise RequestDeadlineError(f"appends without an outcome after {deadline_seconds:g} s") from None

    def has_pending_transactions(self) -> bool:
        """Whether an append is on its way or a context is between two attempts."""
        return self._open.submissions.retrying > 0 or self._open.partitions.has_pending()

    async def set_partitions(self, partitions: Iterable[int], *, deadline_seconds: float = 10.0) -> None:
        """Choose the partitions to take part in (`client.autoMount: false` only); the others are flushed
        and let go. When it is cancelled, those not let go yet stay in use. ClientClosedError from the moment
        a close begins."""
        self._open.life.check_not_closing()
        seconds = time_limit("deadline_seconds", deadline_seconds)
        await self._open.partitions.choose(partitions, seconds)

    def get_partitions(self) -> list[int]:
        """The partitions this client takes part in."""
        return self._open.partitions.active()

    def endpoint_of(self, partition: int) -> Endpoint | None:
        """The server that owns a partition, as far as known."""
        return self._open.partitions.endpoints.get(partition)
