"""The ZooKeeper store as the rest of Waltz sees it: a protocol with two implementations that pass one test
suite.

* `zk_client.KazooStore`: real ZooKeeper.
* `memory_store.MemoryStore`: the same behaviour in one process, on `loop.time()`, with faults on demand.

Rules both keep
  1. Everything happens on the event loop: results, watches, session events.
  2. A watch fires at most once: when the znode changes, or when the connection that carries it is lost. It
     never says what happened; the owner reads again. It is dropped without firing only when the read that set
     it failed (`exists` of an absent znode does set it).
  3. No operation is ever repeated. ConnectionLostError means: the outcome of a write is unknown.
  4. `epoch` grows by one with every new session. Events of an older epoch are dropped on the loop.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Watch = Callable[[], None]


class ZnodeStat(NamedTuple):
    """The part of ZooKeeper's Stat that is used here."""

    version: int
    cversion: int
    ephemeral_owner: int
    num_children: int = 0
    modified_ms: int = 0
    """When the data were written last, by ZooKeeper's clock (Unix time); 0 = not known."""


class SessionState(enum.Enum):
    """CONNECTED: usable. SUSPENDED: no connection, the session may still live. LOST: the session is over."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class SessionEvent(NamedTuple):
    """A change of the session. `last_contact`: `loop.time()` (seconds) at which the newest answered
    request left us."""

    state: SessionState
    epoch: int
    last_contact: float


SessionListener = Callable[[SessionEvent], None]


@dataclass(frozen=True, slots=True)
class CreateOp:
    """Create a znode in a transaction. `data` None = a znode without data."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetOp:
    """Set data; `version` -1 = whatever it is."""

    path: str
    data: bytes | None
    version: int = -1


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """Delete a znode; `version` -1 = whatever it is."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class CheckOp:
    """The znode must exist and, unless `version` is -1, have this data version."""

    path: str
    version: int = -1


Op = CreateOp | SetOp | DeleteOp | CheckOp


class ZooKeeperReads(Protocol):
    """What those need who only read."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        """Data and Stat; NoNodeError. The watch fires on a change of data or deletion."""
        ...

    async def get_children(self, path: str, watch: Watch | None = None) -> tuple[list[str], ZnodeStat]:
        """Sorted names and Stat; NoNodeError. The watch fires when a child comes or goes, or on deletion."""
        ...

    async def sync(self, path: str) -> None:
        """Wait until what this session reads includes every change made before the call, by whomever.

        A member of an ensemble may answer reads with an older state of the tree; a session's own writes are
        always seen.
        """
        ...


class ZooKeeperStore(ZooKeeperReads, Protocol):
    """One ZooKeeper session after another; see the module for the rules.

    Every operation may raise ConnectionLostError, SessionLostError and AuthError besides what it names.
    Cancelling a call leaves the outcome of a write unknown. A write that ZooKeeper does not take
    (`request_size`) is a ZnodeTooLargeError, before it is sent.
    """

    @property
    def session_timeout_seconds(self) -> float:
        """The timeout granted by ZooKeeper."""
        ...

    @property
    def epoch(self) -> int: ...

    @property
    def session_id(self) -> int:
        """The `ephemeral_owner` of the znodes of the present session; between two, of the last one."""
        ...

    @property
    def state(self) -> SessionState: ...

    @property
    def last_contact(self) -> float:
        """`loop.time()` at which the newest answered request was sent: the session cannot have ended before
        this plus the session timeout."""
        ...

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        """Call `listener` on every change from now on; returns the function that removes it."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        """Stat or None. The watch fires on creation, change of data or deletion."""
        ...

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create and return the path (with its number when sequential); NodeExistsError, NoNodeError."""
        ...

    async def set(self, path: str, data: bytes | None, *, version: int = -1) -> ZnodeStat:
        """Set the data; NoNodeError, VersionConflictError."""
        ...

    async def delete(self, path: str, *, version: int = -1) -> None:
        """Delete; NoNodeError, VersionConflictError, NotEmptyError."""
        ...

    async def transaction(self, ops: Sequence[Op]) -> None:
        """All or nothing; raises the error of the first operation that failed."""
        ...

    async def close(self) -> None:
        """End the session (its ephemeral znodes go at once). Idempotent."""
        ...
