"""RPC side: transaction data and high-water marks by partition, administrative requests by server.

A request waits for its partition's server, is sent again on the replacement when the connection is lost or
the partition moves (each time with a fresh request id), and ends at its deadline. One timer looks after all
of them. Links to servers are opened when first needed. Owner: the client, on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from waltz_client._internal.link import Link, LinkSettings
from waltz_client._internal.req_ids import ReqIdSources
from waltz_client._internal.rpc.call import PartitionCall
from waltz_client._internal.rpc.session import RpcSession
from waltz_client.errors import (
    ClientClosedError,
    RequestDeadlineError,
    ServerRequestError,
    UsageError,
    WaltzClientError,
)
from waltz_protocol.backoff import Random
from waltz_protocol.codec import CLIENT
from waltz_protocol.errors import EncodeError
from waltz_protocol.frames.compressed_blocks import BlockExpander
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import Endpoint, ReqId

log = logging.getLogger(__name__)

M = TypeVar("M")

SCAN_SECONDS = 0.1
FIRST_RETRY_SECONDS = 0.01
MAX_RETRY_SECONDS = 5.0


class _Server:
    """The RPC link to one server."""

    def __init__(self, link: Link, task: asyncio.Task[None]) -> None:
        self.link = link
        self.task = task
        self.session: RpcSession | None = None
        self.ready_waiters: set[asyncio.Future[None]] = set()
        self.requests = 0
        """Administrative ones under way."""

    def wake(self) -> None:
        """Who waits for the connection looks again."""
        for waiter in self.ready_waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_ready(self) -> None:
        """Until `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready_waiters.add(waiter)
        try:
            await waiter
        finally:
            self.ready_waiters.discard(waiter)


class RpcClient:
    """See the module.

    Invariant: a call that is not done is in `_active`, and either waits for a server (`_waiting` of its
    partition), or for an answer (`calls` of a session), or for a retry timer; never for nothing.
    """

    def __init__(
        self,
        req_ids: ReqIdSources,
        link_settings: LinkSettings,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        random: Random,
        *,
        resend_seconds: float,
        expander: BlockExpander | None = None,
    ) -> None:
        """`expander`: if compressed blocks are asked for."""
        self._req_ids = req_ids
        self._link_settings = link_settings
        self._spawn = spawn
        self._random = random
        self._resend_seconds = resend_seconds
        self._expander = expander
        self._servers: dict[Endpoint, _Server] = {}
        self._endpoints: dict[int, Endpoint] = {}
        self._alive: set[Endpoint] = set()
        self._waiting: dict[int, dict[PartitionCall, None]] = {}
        self._active: dict[PartitionCall, None] = {}
        self._called = asyncio.Event()
        self._closed = False

    # -- discovery -------------------------------------------------------------------------------------------

    def set_endpoints(self, endpoints: dict[int, Endpoint], alive: set[Endpoint]) -> None:
        """Who owns what now. Calls of partitions that moved go to the new owner."""
        moved = [p for p, endpoint in self._endpoints.items() if endpoints.get(p) != endpoint]
        self._endpoints, self._alive = dict(endpoints), set(alive)
        for endpoint in list(self._servers):
            self._leave_stranger(endpoint)
        for partition_id in moved:
            for call in [c for c in self._active if c.partition_id == partition_id and c.session is not None]:
                self._take_back(call)
        for partition_id in list(self._waiting):
            self._send_waiting(partition_id)

    def _leave_stranger(self, endpoint: Endpoint) -> None:
        """End the link to a server that is not of the cluster, once no request waits for it."""
        server = self._servers.get(endpoint)
        if server is not None and endpoint not in self._alive and not server.requests:
            del self._servers[endpoint]
            server.task.cancel()

    def _server(self, endpoint: Endpoint) -> _Server:
        server = self._servers.get(endpoint)
        if server is None:
            link = Link(
                endpoint,
                self._link_settings,
                lambda: RpcSession(endpoint, self._session_ready, self._session_lost, self._expander),
                self._random,
            )
            server = _Server(link, self._spawn(link.run(), f"rpc connection to {endpoint}"))
            self._servers[endpoint] = server
        return server

    def _session_ready(self, session: RpcSession) -> None:
        server = self._servers.get(session.endpoint)
        if server is None:
            return
        server.session = session
        server.wake()
        for partition_id in list(self._waiting):
            if self._endpoints.get(partition_id) == session.endpoint:
                self._send_waiting(partition_id)

    def _session_lost(self, session: RpcSession, reason: str) -> None:
        server = self._servers.get(session.endpoint)
        if server is not None and server.session is session:
            server.session = None
        lost, session.calls = session.calls, {}
        for call in dict.fromkeys(lost.values()):
            call.session = None
            call.lost()
            if not call.done:
                self._waiting.setdefault(call.partition_id, {})[call] = None

    # -- calls by partition ----------------------------------------------------------------------------------

    def new_call(
        self,
        partition_id: int,
        transaction_id: int | None,
        deadline_seconds: float | None,
        on_result: Callable[[bytes | int | None, WaltzClientError | None], None],
    ) -> PartitionCall:
        """A data request (with a transaction id) or a high-water mark request (without), not started yet."""
        deadline = None if deadline_seconds is None else asyncio.get_running_loop().time() + deadline_seconds
        return PartitionCall(self, partition_id, transaction_id, deadline, on_result)

    def start(self, call: PartitionCall) -> None:
        """Send it, now or as soon as there is a server."""
        if self._closed:
            call.finish(None, ClientClosedError("the client is closed"))
            return
        self._active[call] = None
        self._called.set()
        self._send(call)

    def give_up(self, call: PartitionCall) -> None:
        """The caller does not want it any longer: `on_result` gets nothing and no error."""
        if not call.done:
            self._take_back(call)
            call.finish(None, None)

    def forget(self, call: PartitionCall) -> None:
        """The call is done."""
        self._active.pop(call, None)
        waiting = self._waiting.get(call.partition_id)
        if waiting is not None:
            waiting.pop(call, None)
            if not waiting:
                del self._waiting[call.partition_id]

    def _send(self, call: PartitionCall) -> None:
        endpoint = self._endpoints.get(call.partition_id)
        session = self._server(endpoint).session if endpoint is not None else None
        if session is None or not session.ready:
            self._waiting.setdefault(call.partition_id, {})[call] = None
            return
        if not call.takes(session.version):
            return
        try:
            frame = call.request(session, self._req_ids.of(call.partition_id))
        except Exception as error:  # whatever it is: the others that wait are sent
            call.withdraw(session)
            text = f"partition {call.partition_id}: a request that cannot be sent: {error}"
            kind = UsageError if isinstance(error, EncodeError) else WaltzClientError
            call.finish(None, kind(text))
            return
        call.session = session
        call.attempts += 1
        self._await_answer(call)
        session.send_frame(frame)

    def _await_answer(self, call: PartitionCall) -> None:
        call.resend_at = asyncio.get_running_loop().time() + self._resend_seconds * min(call.attempts, 4)

    def _send_waiting(self, partition_id: int) -> None:
        waiting = self._waiting.pop(partition_id, None)
        if waiting:
            for call in waiting:
                self._send(call)

    def _take_back(self, call: PartitionCall) -> None:
        """Forget that it was sent; it waits for a server again. A late answer is ignored."""
        session, call.session = call.session, None
        if session is not None:
            call.withdraw(session)
        if not call.done:
            self._waiting.setdefault(call.partition_id, {})[call] = None

    def retry_later(self, call: PartitionCall, reason: str) -> None:
        """The server could not answer: again after 10 ms doubling to 5 s, until the deadline."""
        delay = min(FIRST_RETRY_SECONDS * 2 ** min(call.attempts - 1, 10), MAX_RETRY_SECONDS)
        delay *= 0.5 + 0.5 * self._random.random()
        if call.attempts in (3, 30):
            log.warning(
                "partition %d: a request has failed %d times: %s",
                call.partition_id,
                call.attempts,
                reason,
                extra={"partition": call.partition_id, "attempts": call.attempts},
            )
        asyncio.get_running_loop().call_later(delay, self._retry, call)

    def _retry(self, call: PartitionCall) -> None:
        if not call.done and call.session is None:
            self._send(call)

    async def run_timer(self) -> None:
        """Deadlines and silent requests; runs as long as the client, and sleeps while there are none."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._active:
                self._called.clear()
                await self._called.wait()
            await asyncio.sleep(SCAN_SECONDS)
            now = loop.time()
            for call in list(self._active):
                if call.deadline is not None and now >= call.deadline:
                    self._expire(call)
                elif call.session is not None and now >= call.resend_at:
                    if call.is_silent():
                        self._take_back(call)
                        self._send_waiting(call.partition_id)
                    else:
                        self._await_answer(call)

    def _expire(self, call: PartitionCall) -> None:
        what = "its high-water mark" if call.transaction_id is None else f"transaction {call.transaction_id}"
        endpoint = self._endpoints.get(call.partition_id)
        where = "no server owns it" if endpoint is None else f"server {endpoint}"
        if (
            endpoint is not None
            and call.session is None
            and (error := self._server(endpoint).link.last_error)
        ):
            where = error
        self._take_back(call)
        call.finish(
            None,
            RequestDeadlineError(f"partition {call.partition_id}: no answer for {what} in time ({where})"),
        )

    async def high_water_mark(self, partition_id: int, deadline_seconds: float) -> int:
        """That of the partition's server; RequestDeadlineError."""
        value = await self._request(partition_id, None, deadline_seconds)
        if not isinstance(value, int):
            raise WaltzClientError("the server answered a high-water mark request with data")
        return value

    async def data(
        self, partition_id: int, transaction_id: int, deadline_seconds: float | None = None
    ) -> bytes:
        """The payload of a transaction known to be committed. RequestDeadlineError; without a deadline it is
        asked for until there is an answer."""
        value = await self._request(partition_id, transaction_id, deadline_seconds)
        if not isinstance(value, bytes):
            raise WaltzClientError("the server answered a data request with a number")
        return value

    async def _request(
        self, partition_id: int, transaction_id: int | None, deadline_seconds: float | None
    ) -> bytes | int:
        """One call, awaited. Cancelling it gives the call up."""
        future: asyncio.Future[bytes | int] = asyncio.get_running_loop().create_future()

        def on_result(value: bytes | int | None, error: WaltzClientError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            elif value is not None:
                future.set_result(value)

        call = self.new_call(partition_id, transaction_id, deadline_seconds, on_result)
        try:
            self.start(call)
            return await future
        finally:
            self.give_up(call)

    # -- administrative requests -----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the client is closed")

    async def admin(
        self,
        endpoint: Endpoint,
        make_request: Callable[[ReqId], Message],
        response_type: type[M],
        *,
        routing_partition: int,
        client_id: int,
        deadline_seconds: float,
    ) -> M:
        """One administrative request to one server; waits for the connection, never shares another call's
        answer.

        ServerRequestError when the connection breaks under it (it may have been carried out) or the server's
        version does not know the request; RequestDeadlineError at the deadline; ClientClosedError when the
        client is closed before it is sent.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        server = self._server(endpoint)
        server.requests += 1
        try:
            async with asyncio.timeout(deadline_seconds):
                while server.session is None or not server.session.ready:
                    await server.wait_ready()
                    self._check_open()
                session = server.session
                answer: asyncio.Future[object] = loop.create_future()
                seq_num = self._req_ids.of(routing_partition).next_seq_num()
                req_id = ReqId(client_id, 0, routing_partition, seq_num)
                try:
                    frame = CLIENT.encode(make_request(req_id), session.version)
                except EncodeError as error:
                    raise ServerRequestError(f"server {endpoint}: {error}") from None
                session.admin_calls[routing_partition, seq_num] = lambda m: (
                    None if answer.done() else answer.set_result(m)
                )
                session.send_frame(frame)
                try:
                    message = await answer
                finally:
                    session.admin_calls.pop((routing_partition, seq_num), None)
        except TimeoutError:
            reason = server.link.last_error
            raise RequestDeadlineError(
                f"server {endpoint} did not answer in time{f': {reason}' if reason else ''}"
            ) from None
        finally:
            server.requests -= 1
            self._leave_stranger(endpoint)
        if message is None:
            raise ServerRequestError(f"the connection to server {endpoint} broke before it answered")
        if not isinstance(message, response_type):
            raise ServerRequestError(f"server {endpoint} answered with {type(message).__name__}")
        return message

    def close(self) -> None:
        """End every call with ClientClosedError; the links are ended by their owner."""
        self._closed = True
        for server in self._servers.values():
            server.wake()
        for call in list(self._active):
            call.finish(None, ClientClosedError("the client is closed"))
