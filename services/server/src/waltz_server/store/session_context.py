"""What all sessions of one partition have in common, and what one of them leaves to the next."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from waltz_protocol.backoff import Backoff
from waltz_server.store.api import StoreSettings
from waltz_server.store.list_request_size import ListRequestSize
from waltz_server.store.metadata_keeper import MetadataKeeper
from waltz_server.store.replica_connection import ReplicaDirectory
from waltz_server.store.waiting import retry_backoff


class SessionEnded(Exception):
    """The session is over; the message says why."""


@dataclass(slots=True, eq=False)
class SessionContext:
    """Made by the partition store, which hands it to each opening and each session run."""

    partition_id: int
    settings: StoreSettings
    directory: ReplicaDirectory
    keeper: MetadataKeeper
    rng: random.Random
    list_request_size: ListRequestSize = field(default_factory=ListRequestSize)
    seen_fence: int = -1
    """The highest fence that shut a session out; the id of the next session is above it. It only rises."""
    cut_short_seconds: float = 0.0
    """How long the last session was kept that was replaced while its recovery advanced; 0 once one opens."""
    _backoffs: dict[str, Backoff] = field(default_factory=dict)

    def new_backoff(self) -> Backoff:
        settings = self.settings
        return retry_backoff(settings.initial_retry_interval_ms, settings.max_retry_interval_ms, self.rng)

    def backoff_of(self, name: str) -> Backoff:
        """The back-off of one replica; it outlives sessions."""
        backoff = self._backoffs.get(name)
        if backoff is None:
            backoff = self._backoffs[name] = self.new_backoff()
        return backoff

    def shut_out_by(self, fence: int) -> None:
        """A node takes no session below `fence`."""
        self.seen_fence = max(self.seen_fence, fence)
