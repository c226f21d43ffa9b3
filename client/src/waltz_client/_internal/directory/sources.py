"""Which server a client asks for the directory, and whether it follows what that one says. Pure.

A client watches one server at a time. In a *round* it asks each server that it knows once, in a random order,
until one satisfies it: one that reaches ZooKeeper and whose directory is not older than what is followed.

Invariants (safety E2, with several sources)
* Only directories of one cluster key are followed: the one that was given, else the first that is seen.
* A directory with a smaller version than the followed one is not followed, unless `OLDER_ROUNDS` whole rounds
  have shown none that is as new (ZooKeeper was restored from a copy); and a generation that is smaller than
  one seen before is never followed, whatever its directory (`partitions.Partitions.follow`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from uuid import UUID

from waltz_protocol.backoff import Random
from waltz_protocol.directory import Directory
from waltz_protocol.types import Endpoint

OLDER_ROUNDS = 3
MAX_REASONS = 10
"""Servers that an error names."""


class Judgement(Enum):
    """What to do with a directory, and with the server that sent it."""

    FOLLOW = "follow it and stay"
    FOLLOW_AND_LEAVE = "follow it, and look for a better source"
    LEAVE = "do not follow it, and look for a better source"
    FOREIGN = "do not follow it, and leave at once"

    @property
    def follows(self) -> bool:
        """Whether this directory is the newest one now."""
        return self in (Judgement.FOLLOW, Judgement.FOLLOW_AND_LEAVE)


class Sources:
    """See the module. The caller connects, waits and pauses."""

    def __init__(self, seeds: Sequence[Endpoint], random: Random, cluster_key: UUID | None = None) -> None:
        self.followed: Directory | None = None
        self.cluster_key = cluster_key
        self.rounds = 0
        """Whole ones since a server satisfied."""
        self._seeds = tuple(dict.fromkeys(seeds))
        self._random = random
        self._reasons: dict[Endpoint, str] = {}
        """Why a server did not satisfy when it was asked last."""
        self._hopeless: set[Endpoint] = set()
        """Servers of which no answer can satisfy as long as they run what they do."""
        self._asked: set[Endpoint] = set()
        self._newest_older: Directory | None = None

    def known(self) -> list[Endpoint]:
        """All servers: those that were given, and those of the directory that is followed."""
        followed = self.followed
        return list(dict.fromkeys((*self._seeds, *(followed.servers if followed is not None else ()))))

    @property
    def round_over(self) -> bool:
        """Everybody was asked: the next one begins a round."""
        return all(server in self._asked for server in self.known())

    def next(self) -> Endpoint:
        """The server to ask now; those without hope come last."""
        if self.round_over:
            self._asked.clear()
            self.rounds += 1
        open_ones = [server for server in self.known() if server not in self._asked]
        chosen = [server for server in open_ones if server not in self._hopeless] or open_ones
        server = chosen[min(int(self._random.random() * len(chosen)), len(chosen) - 1)]
        self._asked.add(server)
        return server

    def failed(self, server: Endpoint, reason: str, *, hopeless: bool = False) -> None:
        """It gave no directory, or its connection has ended."""
        self._reasons[server] = reason
        if hopeless:
            self._hopeless.add(server)
        else:
            self._hopeless.discard(server)

    def judge(self, server: Endpoint, directory: Directory) -> Judgement:
        """A directory has come from this server."""
        followed = self.followed
        if self.cluster_key not in (None, directory.cluster_key) or (
            followed is not None and directory.num_partitions != followed.num_partitions
        ):
            name = directory.cluster_name
            reason = f"it is of another cluster, {name!r} with the key {directory.cluster_key}"
            self.failed(server, reason, hopeless=True)
            return Judgement.FOREIGN
        self.cluster_key = directory.cluster_key
        self._hopeless.discard(server)
        if followed is not None and directory.version < followed.version:
            return self._older(server, directory)
        self.followed = directory
        self._newest_older = None
        if not directory.in_contact:
            self.failed(server, "it does not reach ZooKeeper")
            return Judgement.FOLLOW_AND_LEAVE
        self._satisfied(server)
        return Judgement.FOLLOW

    def _older(self, server: Endpoint, directory: Directory) -> Judgement:
        newest = self._newest_older
        if directory.in_contact and (newest is None or directory.version >= newest.version):
            self._newest_older = newest = directory
        if newest is directory and self.rounds >= OLDER_ROUNDS:
            self.followed = directory
            self._newest_older = None
            self._satisfied(server)
            return Judgement.FOLLOW
        self.failed(server, "its directory is older than that of another server")
        return Judgement.LEAVE

    def _satisfied(self, server: Endpoint) -> None:
        known = set(self.known())  # servers come and go for as long as the client lives
        self._reasons = {one: why for one, why in self._reasons.items() if one in known and one != server}
        self._hopeless &= known
        self._asked = {server}
        self.rounds = 0

    @property
    def hopeless(self) -> bool:
        """Every server was asked, and none of them can ever give a directory."""
        return self.followed is None and self._hopeless >= set(self.known())

    def reason(self, server: Endpoint) -> str:
        """Why it did not satisfy when it was asked last; empty when it did."""
        return self._reasons.get(server, "")

    def reasons(self) -> str:
        """Each server that was asked, and why it did not satisfy."""
        lines = [f"{server}: {reason}" for server, reason in self._reasons.items()]
        more = f"; and {len(lines) - MAX_REASONS} more" if len(lines) > MAX_REASONS else ""
        return "; ".join(lines[:MAX_REASONS]) + more
