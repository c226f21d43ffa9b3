"""ZooKeeper on virtual time: the tree of the in-memory twin behind connections that have latency and fail.

Requests, answers and watches travel over the links of the network between the session's host and the host
`zookeeper`, in order in each direction, so whatever blocks or slows those links works here too. The server
ends a session when it has heard nothing for the session timeout, never earlier than `last_contact` plus the
timeout: because the host is cut off, the process is paused, or the process was killed (its ephemeral znodes
stay until then).

A request may still arrive after its client has given it up, as long as the session has not come back on
another connection: that is what "outcome unknown" means. The client's side is in `zookeeper_session`.

Reads may be answered by a follower that lags behind (`SimZooKeeper.follower_lag`). As with the real
one, what a session reads never goes back, is never older than its own last write or a watch that it was sent,
and a watch set on a state that has changed since fires when the follower learns of the change.

A member of the ensemble may be cut off from the majority with the sessions connected to it
(`zookeeper_minority`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from tests.sim.kernel.disk import Seconds
from tests.sim.kernel.loop import KERNEL, SimLoop
from tests.sim.kernel.zookeeper_history import History
from tests.sim.kernel.zookeeper_minority import HELD, Answer, Held, Minority
from tests.sim.kernel.zookeeper_session import SimSession
from waltz_cluster.errors import ConnectError, NoNodeError, StoreError
from waltz_cluster.memory_store import Fault
from waltz_cluster.memory_tree import MemoryTree, Node, Watcher
from waltz_cluster.session import OneShotWatch
from waltz_cluster.store import DeleteOp, Op

HOST = "zookeeper"
TICK_SECONDS = 0.5
"""Sessions end up to this much later than their timeout says: the server looks at them in steps."""

NO_DELAY = Seconds(0.0, 0.0)
FOLLOWER_LAGS = (NO_DELAY, NO_DELAY, Seconds(0.0, 0.02), Seconds(0.0, 0.5))
"""What a seed may choose for `SimZooKeeper.follower_lag`: one server, a good ensemble, one under
load."""

FaultChoice = Callable[[str, str, str], Fault | None]
"""(host, name of the operation, path) -> fault."""


class _Session:
    """What the server knows of a session."""

    __slots__ = ("connection", "heard", "orphan", "store", "timeout_seconds", "view")

    def __init__(self, store: SimSession, connection: int, heard: float, timeout_seconds: float) -> None:
        self.store, self.connection = store, connection
        self.heard, self.timeout_seconds = heard, timeout_seconds
        self.orphan = False  # its store never heard of it, and uses a later one
        self.view = 0  # number of the change up to which it has seen everything


class SimZooKeeper(MemoryTree):
    """The server. `watch_delay`: how much later watches arrive (and all answers after them)."""

    def __init__(self, loop: SimLoop, host_name: str = HOST) -> None:
        super().__init__()
        self.loop = loop
        self.host_name = host_name
        self.watch_delay = NO_DELAY
        self.follower_lag = NO_DELAY
        """How old the state may be that a read is answered with. No fault: ensembles are like that."""
        self.loss_probability = 0.0
        """Of each operation: its connection breaks before the request or before the answer."""
        self.choose_fault: FaultChoice | None = None
        self.expired = 0
        """Sessions that ended by their timeout or by `expire`."""
        self.on_deleted: Callable[[dict[str, int], int], None] | None = None
        """Called after a transaction that deleted znodes: path -> the session that it belonged to (0: to
        none), and the session that deleted them."""
        self.lost_operations = 0
        self._up = True
        self._history = History()
        self._touched: list[str] = []
        self._reading_at: int | None = None  # in a read: the change up to which its follower knows
        self._lag = 0.0  # in a read: how late its follower learns of changes, in seconds
        self._records: dict[int, _Session] = {}
        self._rng: random.Random = loop.rng("zookeeper")
        self._minority: Minority | None = None

    # -- sessions ----------------------------------------------------------------------------------------

    def session(self, timeout_seconds: float = 6.0) -> SimSession:
        """A store of the running process, which begins to connect (its state is SUSPENDED until it is
        connected)."""
        return SimSession(self, timeout_seconds)

    async def connect(
        self, timeout_seconds: float = 6.0, connect_timeout_seconds: float = 30.0
    ) -> SimSession:
        """A connected store of the running process; ConnectError when ZooKeeper is not reached in time."""
        store = self.session(timeout_seconds)
        if not await store.wait_connected(connect_timeout_seconds):
            await store.close()
            raise ConnectError(f"ZooKeeper did not answer within {connect_timeout_seconds:g} s")
        return store

    # -- faults --------------------------------------------------------------------------------------------

    def restart(self, down_seconds: float = 0.0) -> None:
        """All connections break; the tree stays; when it is back every session has its full timeout again."""
        self.loop.note(f"zookeeper restarts, down {down_seconds:.3f}")
        self._up = False
        for session_id, record in list(self._records.items()):
            if self._minority is None or session_id not in self._minority.connections:
                self._hang_up(record)
        self.loop.kernel_later(down_seconds, self._come_back)

    def _come_back(self) -> None:
        self._up = True
        for record in self._records.values():
            record.heard = self.loop.now

    def expire(self, host_name: str) -> int:
        """End the sessions of a host now; its stores learn it when they connect again. How many there
        were."""
        found = [i for i, record in self._records.items() if record.store.host_name == host_name]
        for session_id in found:
            self._expire(session_id)
        return len(found)

    def cut_off_member(self, host_names: Collection[str]) -> int:
        """One member, to which these hosts are connected, hears nothing of the others until `rejoin`;
        how many sessions it serves. One at a time."""
        if self._minority is not None:
            return 0
        found = {i: r for i, r in self._records.items() if r.connection and r.store.host_name in host_names}
        self.loop.note(f"zookeeper: a member with {len(found)} sessions is cut off")
        self._minority = Minority(self._history.zxid, {i: (r.store, r.connection) for i, r in found.items()})
        return len(found)

    def rejoin(self, *, with_writes: bool) -> None:
        """It gives up its connections, as a follower without a leader does; `with_writes`: what it was
        asked to write reaches the leader before."""
        minority, self._minority = self._minority, None
        if minority is None:
            return
        self.loop.note("zookeeper: the member that was cut off is back")
        for held in minority.held if with_writes else ():
            held.arrive()
        for session_id, (store, connection) in minority.connections.items():
            record = self._records.get(session_id)
            if record is not None and record.connection == connection:
                self._hang_up(record)
            else:  # the session has ended meanwhile, and nobody could know
                store.answers.send(partial(store.disconnected, connection))

    def hold(self, session_id: int, held: Held) -> None:
        """A request that was answered with HELD: the member keeps it."""
        if self._minority is not None:
            self._minority.hold(session_id, held)

    def unheard(self, session_id: int) -> bool:
        """Nothing that happens is known to the member that the session is connected to."""
        return self._minority is not None and session_id in self._minority.connections

    def break_connections(self, host_name: str) -> int:
        """Reset the connections of a host; its sessions live on. How many there were."""
        found = [r for r in self._records.values() if r.store.host_name == host_name and r.connection]
        for record in found:
            self._hang_up(record)
        return len(found)

    def heal(self) -> None:
        """No fault is on order any longer."""
        self.watch_delay, self.loss_probability, self.choose_fault = NO_DELAY, 0.0, None

    def live_sessions(self) -> list[str]:
        """Hosts of the sessions that live, in order of their beginning."""
        return [record.store.host_name for record in self._records.values()]

    # -- what sessions call --------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Takes connections."""
        return self._up

    def draw_fault(self, host_name: str, name: str, path: str) -> Fault | None:
        """What is to happen to an operation."""
        fault = self.choose_fault(host_name, name, path) if self.choose_fault is not None else None
        if fault is None and self.loss_probability and self._rng.random() < self.loss_probability:
            fault = self._rng.choice((Fault.LOSE_REQUEST, Fault.LOSE_REPLY))
        if fault is not None:
            self.lost_operations += 1
            self.loop.note(f"zookeeper loses the {fault.value} of {name} {path}")
        return fault

    def accept(self, store: SimSession, session_id: int, connection: int, timeout_seconds: float) -> int:
        """A connection for an old session, or for a new one (`session_id` 0): its id, or 0 when it has
        ended."""
        if session_id == 0:
            for earlier in self._records.values():
                earlier.orphan = earlier.orphan or earlier.store is store
            session_id = self.open_session()
            record = _Session(store, connection, self.loop.now, timeout_seconds)
            self._records[session_id] = record
            self._watch_over(session_id, record)
            return session_id
        old = self._records.get(session_id)
        if old is None:
            return 0
        if self._minority is not None:  # on another connection, to another member
            self._minority.connections.pop(session_id, None)
        self.drop_watches(store)
        old.connection, old.heard = connection, self.loop.now
        return session_id

    def request(
        self, session_id: int, connection: int, action: Callable[[], Any], *, reads: bool
    ) -> Answer | None:
        """A request has arrived; `None` when nobody is there to answer it, HELD when it has to wait
        (`hold`)."""
        minority = self._minority
        if minority is not None and minority.serves(session_id, connection):
            return (
                self._answer_from(minority, session_id, action)
                if minority.can_answer(session_id, reads)
                else HELD
            )
        record = self._records.get(session_id)
        if not self._up or record is None or record.connection != connection:
            return None
        record.heard = self.loop.now
        if reads:
            lag = self.follower_lag.draw(self._rng) if self.follower_lag.high else 0.0
            self._lag = lag
            record.view = max(record.view, self._history.newest_at(self.loop.now - lag))
            self._reading_at = record.view if record.view < self._history.zxid else None
        try:
            return Answer(action(), None)
        except StoreError as error:
            self._touched.clear()
            return Answer(None, error)
        finally:
            self._reading_at = None
            self._note_change()
            if not reads:
                record.view = self._history.zxid

    def _answer_from(self, minority: Minority, session_id: int, action: Callable[[], Any]) -> Answer:
        """A read, or a heartbeat, as the member knows the tree; the leader hears nothing of it."""
        self._reading_at = minority.zxid
        try:
            return Answer(action(), None)
        except StoreError as error:
            return Answer(None, error)
        finally:
            self._reading_at = None

    def watch(self, kind: str, path: str, store: Watcher, watch: OneShotWatch) -> None:
        """A watch fires also when the connection that carries it is lost, which the store finds out."""
        if not isinstance(store, SimSession):
            raise TypeError("watches are set by sessions")
        store.watch_set(watch)
        if self.unheard(store.session_id):
            return  # it fires with the loss of the connection, which comes before the member is back
        if self._reading_at is not None and self._history.changed_since(path, self._reading_at):
            seen = self._history.changed_at(path, self._reading_at) + self._lag  # when the follower sees it
            self.loop.kernel_later(max(0.0, seen - self.loop.now), self._catch_up, store, watch)
        else:
            super().watch(kind, path, store, watch)

    def hang_up(self, session_id: int, connection: int) -> None:
        """The connection has broken; the session lives on for its timeout."""
        if self._minority is not None and self._minority.serves(session_id, connection):
            store, _ = self._minority.connections.pop(session_id)
            if session_id not in self._records:
                store.answers.send(partial(store.disconnected, connection))
        record = self._records.get(session_id)
        if record is not None and record.connection == connection:
            self._hang_up(record)

    def end_session(self, session_id: int) -> None:
        """Closed in order, or expired: the ephemeral znodes go."""
        record = self._records.pop(session_id, None)
        if record is not None:
            self._drop_watches_of(record)
            super().end_session(session_id)
            self._note_change()

    def transaction(self, ops: Sequence[Op], owner: int) -> None:
        """See `on_deleted`."""
        found = {op.path: self.find(op.path) for op in ops if isinstance(op, DeleteOp)}
        super().transaction(ops, owner)
        if found and self.on_deleted is not None:
            self.on_deleted({path: node.owner for path, node in found.items() if node is not None}, owner)

    # -- states of a moment ago ------------------------------------------------------------------------------

    def node(self, path: str) -> Node:
        """As the one who reads may see it."""
        if self._reading_at is None:
            return super().node(path)
        node = self.find(path)
        if node is None:
            raise NoNodeError(f"{path}: no such znode")
        return node

    def find(self, path: str) -> Node | None:
        """As the one who reads may see it."""
        return super().find(path) if self._reading_at is None else self._history.at(path, self._reading_at)

    def saw_watch(self, session_id: int) -> None:
        """A session that is informed of a change reads nothing older from then on."""
        record = self._records.get(session_id)
        if record is not None:
            record.view = self._history.zxid

    def _fire(self, kind: str, path: str) -> None:
        self._touched.append(path)
        super()._fire(kind, path)

    def _note_change(self) -> None:
        if self._touched:
            self._history.changed(self._touched, super().find, self.loop.now)
            self._touched.clear()

    def _catch_up(self, store: SimSession, watch: OneShotWatch) -> None:
        """The follower learns of the change: the watch that was set on the state before it fires."""
        store.deliver_watch(watch)

    # -- inside --------------------------------------------------------------------------------------------

    def _hang_up(self, record: _Session) -> None:
        connection, record.connection = record.connection, 0
        self._drop_watches_of(record)
        if connection:
            record.store.answers.send(partial(record.store.disconnected, connection))

    def _drop_watches_of(self, record: _Session) -> None:
        """Watches go with their session; those of a store's present session are no matter of an orphan."""
        if not record.orphan:
            self.drop_watches(record.store)

    def _watch_over(self, session_id: int, record: _Session) -> None:
        at = record.heard + record.timeout_seconds + self._rng.random() * TICK_SECONDS
        self.loop.call_at(at, self._look_at, session_id, context=KERNEL)

    def _look_at(self, session_id: int) -> None:
        record = self._records.get(session_id)
        if record is None:
            return
        if self._up and self.loop.now - record.heard >= record.timeout_seconds:
            self._expire(session_id)
        elif self._up:
            self._watch_over(session_id, record)
        else:
            self.loop.call_at(self.loop.now + TICK_SECONDS, self._look_at, session_id, context=KERNEL)

    def _expire(self, session_id: int) -> None:
        record = self._records[session_id]
        self.expired += 1
        self.loop.note(f"zookeeper ends the session of {record.store.host_name}")
        if not self.unheard(session_id):
            self._hang_up(record)
        self.end_session(session_id)
