"""The observers of a client as one: what one of them raises touches nobody else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.raised import is_exit
from waltz_client.errors import AppendError
from waltz_client.observer import ClientObserver
from waltz_protocol.types import Endpoint

log = logging.getLogger(__name__)


class Observers(ClientObserver):
    """Passes everything on. A client without observers has None in its place, which costs nothing.

    What begins returns one value per observer, in their order.
    """

    def __init__(self, observers: Sequence[ClientObserver]) -> None:
        self._all = tuple(observers)
        self._raised: set[tuple[int, str]] = set()

    @classmethod
    def of(cls, observers: Sequence[ClientObserver]) -> Observers | None:
        """None for no observers."""
        return cls(observers) if observers else None

    def connected(self, server: Endpoint) -> None:
        """See ClientObserver."""
        self._each("connected", lambda one: one.connected(server))

    def disconnected(self, server: Endpoint, reason: str) -> None:
        """See ClientObserver."""
        self._each("disconnected", lambda one: one.disconnected(server, reason))

    def connect_failed(self, server: Endpoint, reason: str) -> None:
        """See ClientObserver."""
        self._each("connect_failed", lambda one: one.connect_failed(server, reason))

    def available(self, partition: int, server: Endpoint) -> None:
        """See ClientObserver."""
        self._each("available", lambda one: one.available(partition, server))

    def unavailable(self, partition: int, reason: str) -> None:
        """See ClientObserver."""
        self._each("unavailable", lambda one: one.unavailable(partition, reason))

    def append_waited(self, partition: int, seconds: float) -> None:
        """See ClientObserver."""
        self._each("append_waited", lambda one: one.append_waited(partition, seconds))

    def append_sent(self, partition: int, size_bytes: int) -> object:
        """See ClientObserver."""
        return self._each("append_sent", lambda one: one.append_sent(partition, size_bytes))

    def append_ended(self, sent: object, append: PendingAppend) -> None:
        """See ClientObserver."""
        self._ended("append_ended", sent, lambda one, begun: one.append_ended(begun, append))

    def append_retried(self, partition: int, error: AppendError) -> None:
        """See ClientObserver."""
        self._each("append_retried", lambda one: one.append_retried(partition, error))

    def apply_started(self, partition: int, transaction_id: int) -> object:
        """See ClientObserver."""
        return self._each("apply_started", lambda one: one.apply_started(partition, transaction_id))

    def apply_ended(
        self, started: object, partition: int, transaction_id: int, error: Exception | None
    ) -> None:
        """See ClientObserver."""
        self._ended(
            "apply_ended",
            started,
            lambda one, begun: one.apply_ended(begun, partition, transaction_id, error),
        )

    def _each(self, method: str, call: Callable[[ClientObserver], object]) -> list[object]:
        return [self._guarded(number, method, call, one) for number, one in enumerate(self._all)]

    def _ended(self, method: str, begun: object, call: Callable[[ClientObserver, object], object]) -> None:
        values = begun if isinstance(begun, list) else [None] * len(self._all)
        for number, (one, value) in enumerate(zip(self._all, values, strict=True)):
            self._guarded(number, method, call, one, value)

    def _guarded(self, number: int, method: str, call: Callable[..., object], *given: object) -> object:
        try:
            return call(*given)
        except BaseException as error:
            if is_exit(error):
                raise
            if (number, method) not in self._raised:
                self._raised.add((number, method))
                observer = type(self._all[number]).__name__
                log.exception(
                    "%s of the observer %s raised; it is not logged again",
                    method,
                    observer,
                    extra={"observer": observer},
                )
            return None
