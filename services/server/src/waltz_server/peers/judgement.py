"""What a server makes of its peers: whom to watch, whom to suspect, whom to challenge, whom to evict. Pure:
no clock, no socket, no task; times are seconds of one clock that only grows.

A peer here is one registration of a server, named by its descriptor znode: a name is never used twice, so
nothing that is known of an earlier process at an address counts against a later one. A peer can be suspected
once it has shown that it watches as well; others (servers of 0.13.2) never are.

Invariants (rules G1 to G5 of docs/safety.md)
  1. Nobody is evicted that this server itself hears from, or that has never answered this server.
  2. Nobody is evicted without a challenge in ZooKeeper that it left unanswered for the time that goes with
     the evidence; the eviction itself consumes the challenge, so an answer in the last moment prevents it.
  3. Where there is a third server that watches, at least one other one has to report the suspicion.
  4. Silence evicts nobody while this server hears from less than half of those that watch; and there is at
     most one eviction per pace.
  5. Who answered a challenge, or was evicted for silence, is not challenged again for a time that doubles.
  6. A server that did not run for a while blames nobody for it: all times begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from waltz_protocol.types import Endpoint

JUDGES = 3
"""The servers of the lowest ids watch all others, up to `MAX_WATCHED`: the one that judges, the one that
judges it, and one that is a witness for the other when one of them fails together with somebody else."""
RING = 2
"""So many that follow in the order of ids are watched by each of the others."""
MAX_WATCHED = 64
"""Whom the judge does not watch is never challenged: its death costs the session timeout of ZooKeeper."""
MAX_SUSPECTS = 64
"""In a report."""
GONE_WAIT = 0.05
"""How long a challenge has to be unanswered when nobody listens at the address, as a part of the timeout."""
SILENT_WAIT = 0.5
"""The same for silence, which itself has to last for the other half."""
PACE = 0.25
"""Between two evictions, as a part of the timeout."""
AWAY = 0.25
"""Who did not run for so long, as a part of the timeout, has missed what others had to say."""
FIRST_REST = 2.0
"""The first rest of a suspect after it has answered, in timeouts; it doubles."""
MAX_REST_SECONDS = 300.0
MAX_DOUBLINGS = 20
FORGET_SECONDS = 900.0
"""After so long without suspicion the rests begin anew."""


class PeerId(NamedTuple):
    """One registration."""

    name: str
    server_id: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Challenge:
    """Ask the peer in ZooKeeper whether it is there."""

    name: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take the challenge back: the peer is heard from again, or has left in another way."""

    name: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete its descriptor and give its partitions to the others, if the challenge is still unanswered."""

    name: str
    reason: str


Action = Challenge | Withdraw | Evict


@dataclass(slots=True)
class _Peer:
    id: PeerId
    heard_at: float
    watches: bool | None = None
    """None before it has been reached."""
    gone: bool = False
    challenged_at: float | None = None


@dataclass(slots=True)
class _Rest:
    count: int
    until: float


class PeerJudgement:
    """See the module. Owner: the detector; every method gets the present time."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._me: PeerId | None = None
        self._peers: dict[str, _Peer] = {}
        self._reports: dict[str, tuple[float, frozenset[str]]] = {}
        self._asked: set[str] = set()
        """Whose challenge may be in ZooKeeper: it does not end with a server that leaves in another way."""
        self._rests: dict[tuple[Endpoint, bool], _Rest] = {}
        """By address and kind of evidence (nobody listens there): of one kind says nothing about the
        other."""
        self._evicted_at = float("-inf")
        self._ticked_at: float | None = None

    # -- what happened

    def members(self, me: PeerId | None, others: Iterable[PeerId], now: float) -> None:
        """Who is registered now; `me` None while this server is not."""
        self._me = me
        listed = {peer.name: peer for peer in others}
        for name in [name for name in self._peers if name not in listed]:
            del self._peers[name]
        for name, peer in listed.items():
            if name not in self._peers:
                self._peers[name] = _Peer(peer, now)
        self._reports = {name: report for name, report in self._reports.items() if name in self._peers}
        if me is None:  # for a moment: whom it watched is known
            return
        watched = {peer.name for peer in self.watched()}
        for name, known in self._peers.items():
            if known.watches and name not in watched:  # nothing will be heard of it
                known.watches, known.gone = None, False

    def heard(self, name: str, now: float) -> None:
        """It has answered, and it is the process of this registration."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.heard_at, peer.watches, peer.gone = now, True, False

    def refused(self, name: str) -> None:
        """Nobody listens at its address, or a process of another registration does."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.gone = True

    def does_not_watch(self, name: str) -> None:
        """It is of a release without this, or was configured so: it is left alone."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.watches, peer.gone = False, False

    def reported(self, observer: str, suspects: Iterable[str], now: float) -> None:
        """Another server's present suspicions."""
        if observer in self._peers:
            self._reports[observer] = (now, frozenset(suspects))

    def challenged(self, name: str, now: float) -> None:
        """The challenge is in ZooKeeper."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.challenged_at = now

    def answered(self, name: str, now: float) -> None:
        """It has answered the challenge, so it lives: it is left in peace for a while."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.challenged_at, peer.heard_at = None, now
            self._rest((peer.id.endpoint, peer.gone), now)

    def withdrawn(self, name: str) -> None:
        """The challenge is no longer there."""
        self.unknown(name)
        self._asked.discard(name)

    def unknown(self, name: str) -> None:
        """It is not known whether the challenge is there."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.challenged_at = None

    def evicted(self, name: str, now: float) -> None:
        """It was."""
        peer = self._peers.pop(name, None)
        self._asked.discard(name)
        self._evicted_at = now
        if peer is not None and not peer.gone:
            self._rest((peer.id.endpoint, False), now)

    def _rest(self, key: tuple[Endpoint, bool], now: float) -> None:
        before = self._rests.get(key)
        count = before.count + 1 if before is not None and now < before.until + FORGET_SECONDS else 0
        seconds = min(FIRST_REST * self._timeout * 2.0 ** min(count, MAX_DOUBLINGS), MAX_REST_SECONDS)
        self._rests[key] = _Rest(count, now + seconds)
        for old in [each for each, rest in self._rests.items() if now >= rest.until + FORGET_SECONDS]:
            del self._rests[old]

    # -- what follows

    def watched(self) -> list[PeerId]:
        """Whom to keep a connection to, at most `MAX_WATCHED`."""
        me = self._me
        if me is None:
            return []
        peers = sorted(
            (peer.id for peer in self._peers.values() if peer.watches is not False),
            key=lambda peer: (peer.server_id, peer.name),
        )
        after = [peer for peer in peers if peer.server_id > me.server_id]
        ring = after + [peer for peer in peers if peer.server_id <= me.server_id]
        judges = sum(peer.server_id < me.server_id for peer in peers) < JUDGES
        return list(dict.fromkeys([*peers[:JUDGES], *ring[: None if judges else RING]]))[:MAX_WATCHED]

    def suspects(self, now: float) -> dict[str, bool]:
        """What to report: descriptor -> nobody listens at its address."""
        found = {name: peer.gone for name, peer in self._peers.items() if self._suspected(peer, now)}
        return dict(sorted(found.items())[:MAX_SUSPECTS])

    def tick(self, now: float) -> list[Action]:
        """What to do now, the urgent first: one eviction, or challenges and what they leave behind. To be
        called several times in `AWAY` timeouts."""
        before, self._ticked_at = self._ticked_at, now
        if before is not None and now - before > AWAY * self._timeout:
            self._was_away(now)
        actions: list[Action] = []
        me = self._me
        if me is None:
            return actions
        for name, peer in self._peers.items():
            if not self._suspected(peer, now):
                if peer.challenged_at is not None:
                    actions.append(Withdraw(name))
            elif self._judge(me, name, now) and self._witnessed(name, now):
                action = self._against(peer, now)
                if isinstance(action, Evict):
                    return [action]
                if action is not None:
                    self._asked.add(name)
                    actions.append(action)
        actions += map(Withdraw, sorted(self._asked - self._peers.keys()))
        return actions

    def _against(self, peer: _Peer, now: float) -> Action | None:
        if peer.challenged_at is None:
            rest = self._rests.get((peer.id.endpoint, peer.gone))
            return Challenge(peer.id.name) if rest is None or now >= rest.until else None
        wait = self._timeout * (GONE_WAIT if peer.gone else SILENT_WAIT)
        if now < peer.challenged_at + wait or now < self._evicted_at + PACE * self._timeout:
            return None
        if peer.gone:
            return Evict(peer.id.name, "nobody listens at its address")
        if not self._enough_heard(now):
            return None
        return Evict(peer.id.name, f"it has been silent for {now - peer.heard_at:.1f} s")

    def _suspected(self, peer: _Peer, now: float) -> bool:
        silent = now - peer.heard_at >= (1 - SILENT_WAIT) * self._timeout
        return peer.watches is True and (peer.gone or silent)

    def _watching(self) -> Mapping[str, _Peer]:
        return {name: peer for name, peer in self._peers.items() if peer.watches}

    def _judge(self, me: PeerId, suspect: str, now: float) -> bool:
        """The lowest id among those that are heard from judges, but not about itself."""
        return all(
            peer.id.server_id > me.server_id
            for name, peer in self._watching().items()
            if name != suspect and not self._suspected(peer, now)
        )

    def _witnessed(self, suspect: str, now: float) -> bool:
        others = [
            name
            for name, peer in self._watching().items()
            if name != suspect and not self._suspected(peer, now)
        ]
        fresh = {
            name
            for name in others
            if name in self._reports and now - self._reports[name][0] <= SILENT_WAIT * self._timeout
        }
        return not others or any(suspect in self._reports[name][1] for name in fresh)

    def _enough_heard(self, now: float) -> bool:
        watching = self._watching().values()
        heard = 1 + sum(not self._suspected(peer, now) for peer in watching)
        return 2 * heard >= 1 + len(watching)

    def _was_away(self, now: float) -> None:
        self._reports.clear()
        for peer in self._peers.values():
            peer.heard_at = now
            if peer.challenged_at is not None:
                peer.challenged_at = now
