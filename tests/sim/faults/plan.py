"""The faults of one seed, drawn before anything runs: plain data, so that any of them can be left out again.
Pure.

A plan names what *may* be done; whether a destructive fault is within what is promised is decided when it is
due, by looking at the true state of the cluster (`apply`).

Kinds of `OWN_STREAM` are drawn by a random stream of their own each, so that adding one leaves the other
faults of a seed as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.sim.cluster.access import MEETING_SECONDS
from tests.sim.cluster.shape import Shape

ZOOKEEPER = "zookeeper"
ADMIN = "admin"
DENSE = "dense"
PRODUCERS = "producers"
"""The profile with the kinds of faults of the default one, and a crowd of writers (`workloads.crowd`)."""
JOURNAL = "journal"
"""The profile with the kinds of faults of the default one, and storage nodes with a journal in most of their
lives."""
DETECTOR = "detector"
"""The profile in which only the detector of servers can be fast: sessions last long, and what strikes are
servers, the links between them, and their ZooKeeper."""
FIRST_OWN_NUMBER = 100
"""Numbers of faults with a stream of their own begin here, one for each kind, in the order of the table."""
CHANCE_PER_WEIGHT = 0.04
"""Of such a fault in a seed of the default profile."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Times in virtual seconds; `amount` is between 0 and 1 and means what the kind makes of
    it."""

    number: int
    at: float
    kind: str
    targets: tuple[str, ...]
    seconds: float
    amount: float

    def __str__(self) -> str:
        return (
            f"{self.number:3d}  {self.at:7.2f} s  {self.kind:<22s} {','.join(self.targets):<28s} "
            f"for {self.seconds:5.2f} s  ({self.amount:.3f})"
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """How often a fault is drawn, what it strikes, and how long it lasts (seconds)."""

    weight: float
    strikes: str
    """"storage", "server", "client", "session" (a server or client), "host" (any), "pair" (two hosts that
    talk), "peers" (two servers), "" (none)."""
    shortest: float
    longest: float


KINDS: Mapping[str, Kind] = {
    "storage-kill": Kind(5, "storage", 0.2, 12),
    "storage-kill-in-call": Kind(4, "storage", 0.2, 8),
    "storage-end-in-deletion": Kind(4, "storage", 0.2, 4),
    "storage-power-off": Kind(4, "storage", 0.5, 12),
    "storage-power-in-call": Kind(5, "storage", 0.5, 8),
    "storage-pause": Kind(3, "storage", 0.5, 12),
    "storage-terminate": Kind(2, "storage", 0.1, 3),
    "storage-wipe": Kind(4, "storage", 0.5, 6),
    "storage-restore": Kind(3, "storage", 4, 15),
    "all-storage-power-off": Kind(2, "", 0.5, 5),
    "blackout": Kind(3, "", 0.5, 10),
    "partition-unavailable": Kind(2, "storage", 0.5, 10),
    "sync-failure": Kind(4, "storage", 1, 10),
    "disk-full": Kind(3, "storage", 1, 12),
    "short-writes": Kind(2, "storage", 2, 15),
    "slow-sync": Kind(3, "storage", 2, 15),
    "read-failure": Kind(2, "storage", 1, 10),
    "slow-reads": Kind(2, "storage", 2, 15),
    "bit-rot": Kind(3, "storage", 0.5, 10),
    "files-lost": Kind(3, "storage", 0.5, 10),
    "server-kill": Kind(5, "server", 0.2, 10),
    "server-power-off": Kind(3, "server", 0.5, 10),
    "server-pause": Kind(4, "server", 0.5, 15),
    "server-terminate": Kind(4, "server", 0.1, 4),
    "client-kill": Kind(5, "client", 0.2, 5),
    "client-pause": Kind(2, "client", 0.5, 12),
    "connection-reset": Kind(4, "pair", 0, 0),
    "cut-in-frame": Kind(4, "pair", 0, 0),
    "one-way-block": Kind(4, "pair", 1, 40),
    "partition": Kind(4, "pair", 1, 40),
    "isolation": Kind(4, "host", 1, 35),
    "split": Kind(5, "", 1, 30),
    "latency-spike": Kind(3, "pair", 2, 20),
    "slow-link": Kind(3, "pair", 2, 20),
    "zookeeper-expiry": Kind(5, "session", 0, 0),
    "zookeeper-lost-answer": Kind(4, "session", 2, 15),
    "zookeeper-late-watches": Kind(2, "session", 2, 20),
    "zookeeper-lagging-follower": Kind(2, "", 2, 20),
    "stale-owner": Kind(4, "server", 2, 10),
    "zookeeper-restart": Kind(3, "", 0.2, 6),
    "zookeeper-cut": Kind(4, "session", 1, 25),
    "client-ids-back": Kind(3, "client", 0.2, 5),
    "states-lost": Kind(2, "", 0.5, 6),
    "zookeeper-older-copy": Kind(3, "", 0.5, 20),
    "clock-step": Kind(2, "host", 0, 0),
    "replica-move": Kind(4, "", 1, 5),
    "replica-remove-add": Kind(3, "", 1, 10),
    "rolling-restart": Kind(2, "", 0.2, 2),
    "rolling-restart-servers": Kind(2, "", 0.2, 3),
}
OWN_STREAM: Mapping[str, Kind] = {
    "vm-suspend": Kind(4, "host", 1, 30),
    "volume-mounted-twice": Kind(3, "storage", 2, 15),
    "zookeeper-minority": Kind(4, "server", 2, 10),
    "lost-write": Kind(5, "storage", 0.5, 8),
    "node-of-0-13-2": Kind(4, "storage", 1, 15),
    "several-forget": Kind(3, "storage", 1, 6),
    "several-replace": Kind(3, "storage", 1, 6),
    "listing-forgotten": Kind(3, "", 0.5, 6),
}
JOURNAL_KINDS: Mapping[str, Kind] = {
    "journal-lost": Kind(8, "storage", 0.5, 6),
    "journal-sync-failure": Kind(8, "storage", 1, 6),
    "journal-power-in-replay": Kind(12, "storage", 0.2, 4),
}
"""Of the profile with journals only, by streams of their own too."""
DETECTOR_KINDS: Mapping[str, Kind] = {
    "peer-block": Kind(10, "peers", 2, 40),
    "server-flap": Kind(6, "server", 10, 40),
    "servers-gone": Kind(5, "", 0.2, 8),
}
"""Of the profile of the detector only."""
ALL_KINDS: Mapping[str, Kind] = {**KINDS, **OWN_STREAM, **JOURNAL_KINDS, **DETECTOR_KINDS}


Stream = Callable[[str], random.Random]
"""A name -> random numbers of their own."""


def _starting(*starts: str) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind.startswith(starts))


PROFILES: Mapping[str, Sequence[str]] = {
    "default": (*KINDS, *OWN_STREAM),
    DENSE: (*KINDS, *OWN_STREAM),
    PRODUCERS: (*KINDS, *OWN_STREAM),
    JOURNAL: (*KINDS, *OWN_STREAM, *JOURNAL_KINDS),
    DETECTOR: (
        *DETECTOR_KINDS,
        *(kind for kind in KINDS if kind.startswith("server-")),
        *("isolation", "split", "vm-suspend", "rolling-restart-servers", "storage-kill"),
        *("zookeeper-expiry", "zookeeper-cut", "zookeeper-lost-answer", "zookeeper-restart"),
    ),
    "outside": (*OWN_STREAM, "server-kill", "storage-kill", "storage-power-off", "all-storage-power-off"),
    "calm": (),
    "disk": tuple(
        k
        for k in KINDS
        if k.startswith(
            ("storage-", "all-", "sync-", "disk-", "short-", "slow-s", "slow-r", "read-", "bit-", "files-")
        )
    ),
    "power": ("storage-power-off", "storage-power-in-call", "all-storage-power-off", "blackout"),
    "network": (
        "connection-reset",
        "cut-in-frame",
        "one-way-block",
        "partition",
        "isolation",
        "split",
        "latency-spike",
        "slow-link",
    ),
    "zookeeper": (*_starting("zookeeper-"), "server-pause"),
    "identity": (*_starting("client-"), "connection-reset", "one-way-block", "partition", "server-kill"),
    "older-copy": (
        "zookeeper-older-copy",
        "listing-forgotten",
        "storage-kill",
        "storage-pause",
        "server-kill",
    ),
    "operations": (*_starting("replica-", "rolling-"), "storage-wipe", "server-kill"),
}


WITH_OWN_STREAMS = frozenset({"default", DENSE, PRODUCERS, JOURNAL})
"""Profiles whose plan has both kinds; the others draw all of theirs together."""


def make_plan(
    stream: Stream, shape: Shape, clients: Sequence[str], start: float, seconds: float, profile: str
) -> list[Fault]:
    """Faults for the time from `start` on, in the order of their times.

    Some seeds are quiet, some busy, and half of them draw from a few kinds only, so that these meet often.
    """
    plan = _draw_plan(stream("plan"), shape, clients, start, seconds, _drawn_together(profile))
    if profile not in WITH_OWN_STREAMS:
        return plan
    own = {**OWN_STREAM, **JOURNAL_KINDS} if profile == JOURNAL else OWN_STREAM
    for number, (kind, about) in enumerate(own.items(), FIRST_OWN_NUMBER):
        rng = stream(f"plan {kind}")
        if rng.random() < about.weight * CHANCE_PER_WEIGHT:
            at = _moment(rng, start + rng.random() * seconds)
            plan.append(_draw(rng, number, at, kind, shape, clients))
    return sorted(plan, key=lambda fault: fault.at)


def _drawn_together(profile: str) -> list[str]:
    return [kind for kind in PROFILES[profile] if profile not in WITH_OWN_STREAMS or kind in KINDS]


def _draw_plan(
    rng: random.Random,
    shape: Shape,
    clients: Sequence[str],
    start: float,
    seconds: float,
    kinds: list[str],
) -> list[Fault]:
    if not kinds:
        return []
    if rng.random() < 0.5:
        kinds = rng.sample(kinds, min(len(kinds), rng.randint(2, 8)))
    weights = [ALL_KINDS[kind].weight for kind in kinds]
    times = sorted(_moment(rng, start + rng.random() * seconds) for _ in range(rng.randint(5, 15)))
    if rng.random() < 0.3:  # two at once
        times = sorted(times + [time + rng.random() * 0.5 for time in times if rng.random() < 0.4])[:15]
    drawn = []
    for number, at in enumerate(times):
        kind = rng.choices(kinds, weights)[0]
        drawn.append(_draw(rng, number, at, kind, shape, clients))
    return drawn


def _moment(rng: random.Random, at: float) -> float:
    """Many faults strike while appends are on their way: just after a moment when the workloads meet."""
    if rng.random() < 0.4:
        return at
    return at - at % MEETING_SECONDS + 0.02 * rng.random() ** 2


def _draw(
    rng: random.Random, number: int, at: float, kind: str, shape: Shape, clients: Sequence[str]
) -> Fault:
    about = ALL_KINDS[kind]
    span = about.longest - about.shortest
    seconds = about.shortest + span * rng.random() ** 2  # mostly short
    return Fault(
        number,
        round(at, 5),
        kind,
        _targets(rng, about.strikes, shape, clients),
        round(seconds, 3),
        rng.random(),
    )


def _targets(rng: random.Random, strikes: str, shape: Shape, clients: Sequence[str]) -> tuple[str, ...]:
    storage, servers = shape.storage_names(), shape.server_names()
    match strikes:
        case "storage":
            return (rng.choice(storage),)
        case "server":
            return (rng.choice(servers),)
        case "client":
            return (rng.choice(list(clients)),)
        case "session":
            return (rng.choice([*servers, *servers, *clients]),)
        case "host":
            return (rng.choice([*storage, *servers, *servers, *clients]),)
        case "peers":
            return tuple(rng.sample(servers, 2))
        case "pair":
            pairs = [
                (rng.choice(servers), rng.choice(storage)),
                (rng.choice(list(clients)), rng.choice(servers)),
            ]
            pair = rng.choices(pairs, (3, 2))[0]
            return pair if rng.random() < 0.5 else (pair[1], pair[0])
        case _:
            return ()
