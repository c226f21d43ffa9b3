"""What happens inside a client, for metrics, traces and reactions of an application.

Give observers to `WaltzClient.connect(..., observers=[...])`. `waltz_client.prometheus` and
`waltz_client.opentelemetry` are two of them. What can be asked at any time, rather than followed, is in
`WaltzClient.status`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.transaction_monitor import Cause
from waltz_client.errors import AppendError, Outcome, WaltzClientError
from waltz_protocol.types import Endpoint


class ClientObserver:
    """Subclass it and override what is of interest; every method does nothing here.

    All are called on the client's event loop, inside its own work: they must be short and must not block. One
    that raises is logged once per method, and neither the client nor another observer notices. What begins
    and ends has two methods: whatever the first returns is given to the second.
    """

    def connected(self, server: Endpoint) -> None:
        """The connection for appends and feeds to this server is ready."""

    def disconnected(self, server: Endpoint, reason: str) -> None:
        """It has ended; the client makes another one as long as the server has partitions."""

    def connect_failed(self, server: Endpoint, reason: str) -> None:
        """It could not be made, for another reason than the last time; the client tries again."""

    def available(self, partition: int, server: Endpoint) -> None:
        """Appends to the partition can be sent, and it is read."""

    def unavailable(self, partition: int, reason: str) -> None:
        """Not any longer, until `available`. What was sent has no outcome yet."""

    def append_waited(self, partition: int, seconds: float) -> None:
        """An append is about to be sent, this long after it was called or began to be retried: it waited
        for the partition, for free space in the window or for those before it. `append_nowait` never waits,
        and is not reported."""

    def append_sent(self, partition: int, size_bytes: int) -> object:
        """An append was handed to the connection, in the context of its caller (not of its first caller if
        it was retried in the background). `size_bytes`: of its frame."""
        return None

    def append_ended(self, sent: object, append: PendingAppend) -> None:
        """It has an outcome: see `append.outcome`, `transaction_id` and `error`. `sent`: what `append_sent`
        returned. An `append` or a transaction that is retried is sent and ends several times."""

    def append_retried(self, partition: int, error: AppendError) -> None:
        """It failed for certain, with this error, and will be sent again."""

    def apply_started(self, partition: int, transaction_id: int) -> object:
        """The callbacks are about to apply a transaction; also again after an error."""
        return None

    def apply_ended(
        self, started: object, partition: int, transaction_id: int, error: Exception | None
    ) -> None:
        """They have, or have raised `error`. `started`: what `apply_started` returned."""


class PartitionStatus(NamedTuple):
    """One partition as a client sees it now."""

    partition: int
    server: Endpoint | None
    """Its owner, as ZooKeeper says; None: nobody."""
    available: bool
    """Appends can be sent."""
    reason: str
    """Why it is not available; empty when it is."""
    appends: int
    """On their way, without an outcome."""
    append_bytes: int
    """Of their frames."""
    received: int
    """The last transaction received in order; -1 for none."""
    applied: int | None
    """The last one that the callbacks have applied; None without callbacks, or before they were asked."""
    known_mark: int
    """The highest transaction that this client has received or a server has named; -1 for none."""

    @property
    def lag(self) -> int | None:
        """Transactions known to be committed and not applied yet; None without callbacks."""
        return None if self.applied is None else max(0, self.known_mark - self.applied)


class ClientStatus(NamedTuple):
    """A client now: see `WaltzClient.status`."""

    partitions: tuple[PartitionStatus, ...]
    """Those it takes part in, ascending."""
    retrying: int
    """Transaction contexts between two attempts."""
    closing: bool
    """It takes no new appends."""


class Watched(Protocol):
    """A client whose status is asked now and then: `WaltzClient` or `BlockingWaltzClient`."""

    def status(self) -> ClientStatus: ...


class WatchedClients:
    """The clients that an observer serves gauges of, by name. Any thread."""

    def __init__(self) -> None:
        self._clients: dict[str, Watched] = {}

    def watch(self, client: Watched, name: str) -> None:
        """In place of an earlier one of this name."""
        self._clients[name] = client

    def partitions(self) -> Iterator[tuple[str, PartitionStatus]]:
        """Those of all clients that are open, with the client's name."""
        for name, client in list(self._clients.items()):
            try:
                found = client.status().partitions
            except WaltzClientError:  # it is closed, or not entered yet
                continue
            for one in found:
                yield name, one


def outcome_word(append: PendingAppend) -> str:
    """What became of an append: committed, conflict, failed or unknown."""
    if append.cause is Cause.LOCK_CONFLICT:
        return "conflict"
    return (append.outcome or Outcome.UNKNOWN).value
