"""Votes of one store session: durable prefixes of the replicas -> the committed mark. Pure.

Invariants
  1. A replica has a voice only after `admit`: the caller admits it when ZooKeeper lists it as (this session,
     UNRESOLVED). What it stored before counts from then on, nothing earlier.
  2. A replica's durable prefix grows frame by frame: the answer to frame n counts when all earlier frames
     sent to it in this session were answered with success (answers may overtake, votes may not).
  3. The first failure ends a replica's votes for the session; its prefix stays where it is.
  4. `committed` = the highest id that a quorum of admitted replicas holds; it never goes down.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter

from waltz_server.store.api import StoreError


class VotingError(StoreError):
    """The caller broke the order of a replica's frames; the session must end."""


class _Voter:
    __slots__ = ("answered", "durable", "ended", "listed", "next_txid", "outstanding")

    def __init__(self, durable: int) -> None:
        self.durable = durable
        self.next_txid = durable + 1
        """The first one that is not sent yet."""
        self.listed = False
        self.ended = False
        self.outstanding: deque[tuple[int, int]] = deque()
        self.answered: set[int] = set()


_durable = attrgetter("durable")


class Votes:
    """Counts the votes of one session; the owner is the session."""

    def __init__(self, *, quorum: int, resolved: int) -> None:
        """Nothing above `resolved` is committed yet; `quorum` is the majority of the session's replicas."""
        self.committed = resolved
        self._quorum = quorum
        self._voters: dict[str, _Voter] = {}
        self._listed: list[_Voter] = []

    def join(self, replica: str, durable: int) -> None:
        """A replica is ready with everything up to `durable`; it has no voice yet."""
        if replica in self._voters:
            raise VotingError(f"{replica} joined twice")
        self._voters[replica] = _Voter(durable)

    def admit(self, replica: str) -> bool:
        """ZooKeeper lists the replica: its prefix counts. True when `committed` moved."""
        voter = self._voters[replica]
        if not voter.listed:
            voter.listed = True
            self._listed.append(voter)
        return self._count()

    def sent(self, replica: str, first: int, last: int) -> None:
        """A frame with the records first..last went to the replica; it must continue what was sent before."""
        voter = self._voters[replica]
        if voter.ended or first != voter.next_txid or last < first:
            raise VotingError(
                f"frame {first}..{last} for {replica}, expected {voter.next_txid} (ended: {voter.ended})"
            )
        voter.next_txid = last + 1
        voter.outstanding.append((first, last))

    def stored(self, replica: str, first: int) -> bool:
        """The frame that began with `first` was answered with success. True when `committed` moved."""
        voter = self._voters[replica]
        outstanding = voter.outstanding
        if voter.ended or not outstanding:
            return False
        if outstanding[0][0] != first:
            if first > outstanding[0][0]:
                voter.answered.add(first)
            return False
        voter.durable = outstanding.popleft()[1]
        while voter.answered and outstanding and outstanding[0][0] in voter.answered:
            voter.answered.discard(outstanding[0][0])
            voter.durable = outstanding.popleft()[1]
        if voter.durable <= self.committed:
            return False  # a replica that comes last changes nothing
        return voter.listed and self._count()

    def end(self, replica: str) -> None:
        """The replica failed: what it stored so far stays, nothing it says later counts."""
        voter = self._voters.get(replica)
        if voter is not None:
            voter.ended = True
            voter.outstanding.clear()
            voter.answered.clear()

    def durable(self, replica: str) -> int:
        """The replica's durable prefix in this session; -1 for one that has not joined."""
        voter = self._voters.get(replica)
        return -1 if voter is None else voter.durable

    def has_voice(self, replica: str) -> bool:
        """Whether the replica is listed and has not failed."""
        voter = self._voters.get(replica)
        return voter is not None and voter.listed and not voter.ended

    @property
    def live_voters(self) -> int:
        """Listed replicas that have not failed; fewer than the quorum means nothing more can commit."""
        return sum(not voter.ended for voter in self._listed)

    def _count(self) -> bool:
        listed, committed, ahead = self._listed, self.committed, 0
        for voter in listed:
            if voter.durable > committed:
                ahead += 1
        if ahead < self._quorum:
            return False
        self.committed = sorted(listed, key=_durable)[-self._quorum].durable
        return True
