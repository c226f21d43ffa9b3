"""Which server a client asks for the directory, and whether it follows what that one says. Pure.

A client watches one server at a time. In a *round* it asks each server that it knows once, in a random order,
until one satisfies it: one that reaches ZooKeeper and whose directory is not older than what is followed.

Invariants (safety E2, with several sources)
* Only directories of one cluster key are followed: the one that was given, else the first that is seen.
* A directory with a smaller version than the followed one is not followed, unless `OLDER_ROUNDS` whole rounds
  in a row have shown none that is as new (ZooKeeper was restored from a copy); and a generation that is
  smaller than one seen before is never followed, whatever its directory (`partitions.Partitions.follow`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from uuid import UUID

from waltz_protocol.backoff import Random
from waltz_protocol.directory import Directory
from waltz_protocol.types import Endpoint

OLDER_ROUNDS = 3
HOPELESS_ROUNDS = 2
"""One address may lead to several servers, of which an old one answers first."""
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
        self._hopeless: dict[Endpoint, int] = {}
        """Servers of which no answer can satisfy as long as they run what they do; how often in a row that
        was seen."""
        self._asked: set[Endpoint] = set()
        self._rounds_without = 0
        """Whole ones since a directory as new as the followed one was seen, whoever sent it."""
        self._newest_older = -1
        """Version of the newest directory that is older than the followed one, in this round."""
        self._newest_before = -1
        """The same, in the round before: who showed it may be gone."""

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
            self._rounds_without += 1
            self._newest_before, self._newest_older = self._newest_older, -1
        open_ones = [server for server in self.known() if server not in self._asked]
        chosen = [server for server in open_ones if server not in self._hopeless] or open_ones
        server = chosen[min(int(self._random.random() * len(chosen)), len(chosen) - 1)]
        self._asked.add(server)
        return server

    def failed(self, server: Endpoint, reason: str, *, hopeless: bool = False) -> None:
        """It gave no directory, or its connection has ended."""
        self._reasons[server] = reason
        if hopeless:
            self._hopeless[server] = self._hopeless.get(server, 0) + 1
        else:
            self._hopeless.pop(server, None)

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
        self._hopeless.pop(server, None)
        if followed is not None and directory.version < followed.version:
            return self._older(server, directory)
        self.followed = directory
        self._newest_older = self._newest_before = -1
        if not directory.in_contact:
            self._rounds_without = -1  # the present round is none without such a directory
            self.failed(server, "it does not reach ZooKeeper")
            return Judgement.FOLLOW_AND_LEAVE
        self._satisfied(server)
        return Judgement.FOLLOW

    def _older(self, server: Endpoint, directory: Directory) -> Judgement:
        if directory.in_contact:
            newest = self._newest_older = max(directory.version, self._newest_older)
            as_new = directory.version >= max(newest, self._newest_before)
            if as_new and self._rounds_without >= OLDER_ROUNDS:
                self.followed = directory
                self._newest_older = self._newest_before = -1
                self._satisfied(server)
                return Judgement.FOLLOW
        self.failed(server, "its directory is older than that of another server")
        return Judgement.LEAVE

    def _satisfied(self, server: Endpoint) -> None:
        known = set(self.known())  # servers come and go for as long as the client lives
        self._reasons = {one: why for one, why in self._reasons.items() if one in known and one != server}
        self._hopeless = {one: count for one, count in self._hopeless.items() if one in known}
        self._asked = {server}
        self.rounds = self._rounds_without = 0

    @property
    def hopeless(self) -> bool:
        """Every server was asked in whole rounds, and none of them can ever give a directory."""
        return self.followed is None and all(
            self._hopeless.get(server, 0) >= HOPELESS_ROUNDS for server in self.known()
        )

    def reason(self, server: Endpoint) -> str:
        """Why it did not satisfy when it was asked last; empty when it did."""
        return self._reasons.get(server, "")

    def reasons(self) -> str:
        """Each server that was asked, and why it did not satisfy."""
        lines = [f"{server}: {reason}" for server, reason in self._reasons.items()]
        more = f"; and {len(lines) - MAX_REASONS} more" if len(lines) > MAX_REASONS else ""
        return "; ".join(lines[:MAX_REASONS]) + more
