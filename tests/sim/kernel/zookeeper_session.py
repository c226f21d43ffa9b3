"""The client's side of the simulated ZooKeeper: one session after another, as `waltz_cluster.store` wants
it.

Everything that happens here runs in the process that made the session: a paused process sends no heartbeats
and learns of nothing, a killed one never again. What is under way to the server arrives nevertheless.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tests.sim.kernel.loop import KERNEL, SimLoop
from tests.sim.kernel.network import Link
from tests.sim.kernel.process import current
from tests.sim.kernel.zookeeper_minority import HELD, Answer, Held
from waltz_cluster.errors import ConnectionLostError, SessionLostError, StoreError
from waltz_cluster.memory_store import Fault, FaultHook, TreeOperations
from waltz_cluster.session import OneShotWatch, SessionTracker
from waltz_cluster.store import SessionEvent, SessionListener, SessionState

if TYPE_CHECKING:
    from tests.sim.kernel.zookeeper import SimZooKeeper

T = TypeVar("T")
OUTSIDE = "outside"
"""Host name of sessions that belong to no process."""

_BEATS_PER_TIMEOUT = 4
_SILENCE_SHARE = 2 / 3  # of the session timeout, after which a silent connection is given up
_PACKET_BYTES = 100
_READS = frozenset(("get", "get_children", "exists", "beat"))


class Pipe:
    """One direction of the connections of a session: in order, as late as the link, held back while it is
    blocked."""

    def __init__(self, loop: SimLoop, link: Link, context: contextvars.Context) -> None:
        self._loop, self._link, self._context = loop, link, context
        self._newest_arrival = 0.0

    @property
    def blocked(self) -> bool:
        """Nothing gets through."""
        return self._link.blocked

    def send(self, deliver: Callable[[], object], extra_seconds: float = 0.0) -> None:
        """Call `deliver` at the other end."""
        if self._link.blocked:
            self._link.waiting.append(partial(self.send, deliver))
            return
        arrival = self._loop.now + self._link.delay(_PACKET_BYTES) + extra_seconds
        self._newest_arrival = max(self._newest_arrival, arrival)
        self._loop.deliver_at(self._newest_arrival, deliver, self._context)


class SimSession(TreeOperations):
    """A `ZooKeeperStore`. Made by `SimZooKeeper.session` inside the process that owns it."""

    def __init__(self, server: SimZooKeeper, timeout_seconds: float) -> None:
        super().__init__(server)
        self.fault: FaultHook | None = None
        process = current()
        self.host_name = OUTSIDE if process is None else process.host.name
        self._server = server
        self._loop = server.loop
        self._context = contextvars.copy_context()
        self._rng = server.loop.rng(f"zookeeper session {self.host_name} {server.loop.now}")
        self._timeout_seconds = timeout_seconds
        self._tracker = SessionTracker()
        network = server.loop.network
        self.requests = Pipe(self._loop, network.link(self.host_name, server.host_name), KERNEL)
        self.answers = Pipe(self._loop, network.link(server.host_name, self.host_name), self._context)
        self._session_id = 0
        self._epoch = 0  # of the newest session that was ever connected
        self._connection = 0  # number of the connection in use, 0 without one
        self._attempt = 0  # number of the newest connection or attempt at one
        self._last_contact = self._heard = self._loop.time()
        self._closed = False
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._watching: dict[OneShotWatch, None] = {}
        self._connected = asyncio.Event()
        self._try_to_connect()

    # -- the store's properties ------------------------------------------------------------------------

    @property
    def session_timeout_seconds(self) -> float:
        return self._timeout_seconds

    @property
    def epoch(self) -> int:
        return self._tracker.epoch

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._tracker.state

    @property
    def last_contact(self) -> float:
        return self._last_contact

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        return self._tracker.add_listener(listener)

    async def wait_connected(self, timeout_seconds: float) -> bool:
        """Wait for the first session; False when it takes longer."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._connected.wait()
        except TimeoutError:
            return False
        return True

    # -- connecting ------------------------------------------------------------------------------------

    def _later(self, seconds: float, action: Callable[..., object], *args: Any) -> None:
        self._loop.call_later(seconds, action, *args, context=self._context)

    def _try_to_connect(self) -> None:
        if self._closed or self._connection:
            return
        self._attempt += 1
        if not (self._server.up and not self.requests.blocked and not self.answers.blocked):
            self._later(0.1 + 0.9 * self._rng.random(), self._try_to_connect)
            return
        self._later(min(1.0, self._timeout_seconds / 3), self._try_again, self._attempt)
        self.requests.send(partial(self._at_door, self._session_id, self._attempt, self._loop.time()))

    def _try_again(self, attempt: int) -> None:
        if self._attempt == attempt and not self._connection:
            self._try_to_connect()

    def _at_door(self, session_id: int, attempt: int, sent: float) -> None:
        """At the server."""
        if self._server.up:
            answer = self._server.accept(self, session_id, attempt, self._timeout_seconds)
            self.answers.send(partial(self._let_in, answer, attempt, sent))

    def _let_in(self, session_id: int, attempt: int, sent: float) -> None:
        if self._closed or self._attempt != attempt or self._connection:
            return
        if session_id == 0:
            self._session_id = 0
            self._deliver(SessionState.LOST)
            self._try_to_connect()
            return
        if session_id != self._session_id:
            self._epoch += 1
        self._session_id, self._connection = session_id, attempt
        self._last_contact, self._heard = sent, self._loop.time()
        self._deliver(SessionState.CONNECTED)
        self._connected.set()
        self._later(self._timeout_seconds / _BEATS_PER_TIMEOUT, self._beat, attempt)

    def _deliver(self, state: SessionState) -> None:
        self._loop.note(f"zookeeper session {state.value}")
        self._tracker.deliver(SessionEvent(state, self._epoch, self._last_contact))

    def _beat(self, connection: int) -> None:
        if self._closed or self._connection != connection:
            return
        if self._loop.time() - self._heard > self._timeout_seconds * _SILENCE_SHARE:
            self.disconnected(connection)
            return
        self._request("beat", None, None, None)
        self._later(self._timeout_seconds / _BEATS_PER_TIMEOUT, self._beat, connection)

    def disconnected(self, connection: int) -> None:
        """The connection is gone: what waits for an answer fails, watches fire, then another connection is
        tried."""
        if self._connection != connection:
            return
        self._connection = 0
        if self._closed:
            return
        self._fail_pending(
            ConnectionLostError("the connection to ZooKeeper was lost, the outcome is unknown")
        )
        watching, self._watching = self._watching, {}
        for watch in watching:
            # after the failed reads have withdrawn theirs
            self._loop.call_soon(watch.fire, context=self._context)
        self._deliver(SessionState.SUSPENDED)
        self._later(0.05 + 0.2 * self._rng.random(), self._try_to_connect)

    def _fail_pending(self, error: StoreError) -> None:
        pending, self._pending = self._pending, {}
        for future in pending:
            if not future.done():
                future.set_exception(error)

    # -- operations --------------------------------------------------------------------------------------

    async def _call(self, name: str, path: str, action: Callable[[], T]) -> T:
        if self._closed:
            raise SessionLostError(f"{name} {path}: the ZooKeeper session is closed")
        if self.state is not SessionState.CONNECTED:
            raise ConnectionLostError(f"{name} {path}: not connected to ZooKeeper")
        fault = self.fault(name, path) if self.fault is not None else None
        fault = fault or self._server.draw_fault(self.host_name, name, path)
        future: asyncio.Future[T] = self._loop.create_future()
        self._pending[future] = None
        self._request(name, action, future, fault)
        try:
            return await future
        finally:
            self._pending.pop(future, None)

    def _request(
        self,
        name: str,
        action: Callable[[], T] | None,
        future: asyncio.Future[T] | None,
        fault: Fault | None,
    ) -> None:
        """Send a request, or without an action a heartbeat."""
        self.requests.send(
            partial(
                self._arrived,
                self._session_id,
                self._connection,
                name in _READS,
                action,
                future,
                fault,
                self._loop.time(),
            )
        )

    def _arrived(
        self,
        session_id: int,
        connection: int,
        reads: bool,
        action: Callable[[], T] | None,
        future: asyncio.Future[T] | None,
        fault: Fault | None,
        sent: float,
    ) -> None:
        """At the server."""
        if fault is not Fault.LOSE_REQUEST:
            answer = self._server.request(session_id, connection, action or _nothing, reads=reads)
            if answer is HELD:
                arrive = partial(self._arrived, session_id, connection, reads, action, future, fault, sent)
                self._server.hold(session_id, Held(arrive))
            elif answer is not None and fault is None:
                self.answers.send(partial(self._answered, connection, future, answer, sent))
        if fault is not None:
            self._server.hang_up(session_id, connection)

    def _answered(
        self, connection: int, future: asyncio.Future[T] | None, answer: Answer, sent: float
    ) -> None:
        if self._connection != connection:
            return
        self._last_contact, self._heard = max(self._last_contact, sent), self._loop.time()
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)

    def watch_set(self, watch: OneShotWatch) -> None:
        """At the server: the watch is set."""
        self._watching[watch] = None

    def deliver_watch(self, watch: OneShotWatch) -> None:
        """At the server: the watch is on its way."""
        if self._server.unheard(self._session_id):
            return
        self._server.saw_watch(self._session_id)
        extra = self._server.watch_delay.draw(self._rng)
        self.answers.send(partial(self._fire, self._connection, watch), extra)

    def _fire(self, connection: int, watch: OneShotWatch) -> None:
        if self._connection == connection:
            self._watching.pop(watch, None)
            watch.fire()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watching.clear()
        self._fail_pending(SessionLostError("the ZooKeeper session is closed"))
        if not self._connection:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._request("close", partial(self._server.end_session, self._session_id), future, None)
        await asyncio.wait([future], timeout=self._timeout_seconds)


def _nothing() -> None:
    """A heartbeat."""
