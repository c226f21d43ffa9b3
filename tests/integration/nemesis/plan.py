"""What will be done to the cluster: a seed and the number of the round give the same faults, whatever
happened before.

Kinds come from a deck that is dealt again and again, so that a round of some length has all of them. Faults
overlap freely, except two on one process: nobody can kill what is being restarted; the later one waits.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

MEAN_PAUSE_SECONDS = 1.5
_LONGEST_PAUSE_SECONDS = 4.0
_MARGIN_SECONDS = 0.5
ANYONE = "*"
ADMIN = "admin"
ZOOKEEPER = "zookeeper"


class Kind(StrEnum):
    """Everything that can be done, by the name it has in the table."""

    KILL = "SIGKILL"
    KILL_ALL = "SIGKILL of a whole tier"
    PAUSE = "SIGSTOP"
    TERMINATE = "SIGTERM and start"
    ROLLING = "rolling restart"
    RESET = "connections reset"
    CUT = "cut inside a frame"
    BLOCK = "blocked both ways"
    HALF_OPEN = "blocked one way"
    ISOLATE = "cut off from everybody"
    LATENCY = "latency"
    SLOW = "slow link"
    EXPIRE = "ZooKeeper session expired"
    LATE_OWNER = "old owner's appends late"
    DISK_FULL = "disk full"
    SYNC_FAILS = "sync calls fail"


_PROCESS = (Kind.KILL, Kind.PAUSE, Kind.TERMINATE)
_TIER = (Kind.ROLLING, Kind.KILL_ALL)
_WHOLE_ROLE = (*_PROCESS, *_TIER, Kind.SYNC_FAILS)
"""Kinds that need a process for themselves."""
_FREQUENT = (Kind.KILL, Kind.KILL, Kind.KILL, Kind.PAUSE, Kind.RESET, Kind.CUT, Kind.HALF_OPEN, Kind.BLOCK)
_SECONDS: dict[Kind, tuple[float, float]] = {
    Kind.KILL: (0.1, 5.0),
    Kind.KILL_ALL: (0.1, 2.0),
    Kind.PAUSE: (0.5, 9.0),
    Kind.TERMINATE: (0.1, 2.0),
    Kind.ROLLING: (4.0, 8.0),
    Kind.RESET: (0.0, 0.0),
    Kind.CUT: (0.5, 2.0),
    Kind.BLOCK: (0.5, 8.0),
    Kind.HALF_OPEN: (0.5, 8.0),
    Kind.ISOLATE: (1.0, 8.0),
    Kind.LATENCY: (2.0, 8.0),
    Kind.SLOW: (2.0, 8.0),
    Kind.EXPIRE: (7.0, 10.0),
    Kind.LATE_OWNER: (6.0, 9.0),
    Kind.DISK_FULL: (2.0, 8.0),
    Kind.SYNC_FAILS: (1.0, 6.0),
}


@dataclass(frozen=True)
class Topology:
    """The roles there are. `small_disk` and `failing_syncs` name the storage node that has it, None where
    nobody can."""

    storage: tuple[str, ...]
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    small_disk: str | None
    failing_syncs: str | None

    def pairs(self) -> list[tuple[str, str]]:
        """Who connects to whom, as patterns; one side is one role, the other one or all of a kind."""
        return [
            *((ANYONE, each) for each in self.servers),
            *((each, ANYONE) for each in self.servers),
            *((each, "server-*") for each in self.clients),
            *((server, storage) for server in self.servers for storage in self.storage),
            *((each, ZOOKEEPER) for each in (*self.servers, *self.clients, ADMIN)),
            (ADMIN, "storage-*"),
        ]


@dataclass(frozen=True)
class Fault:
    """One fault: `at` and `seconds` count from the start of the round.

    Processes: `target`. Links: `source` to `target`, with `way` ("towards", "back from"), `latency_ms`,
    `bytes_per_s` as the kind needs.
    """

    at: float
    seconds: float
    kind: Kind
    target: str
    source: str = ""
    way: str = ""
    latency_ms: int = 0
    bytes_per_s: int = 0
    then_reset: bool = False
    """A blocked link ends with a reset, as after a long partition; otherwise what was held arrives late."""

    def __str__(self) -> str:
        extra = [
            f"{self.source} to {self.target}" if self.source else self.target,
            f"{self.way} the target" if self.way else "",
            f"{self.latency_ms} ms" if self.latency_ms else "",
            f"{self.bytes_per_s} bytes/s" if self.bytes_per_s else "",
            "then reset" if self.then_reset else "",
        ]
        return f"{self.at:5.1f} s +{self.seconds:4.1f} s  {self.kind:26} {', '.join(part for part in extra if part)}"


def plan_round(seed: int, number: int, seconds: float, topology: Topology) -> list[Fault]:
    """The faults of one round, by their start; all have ended soon after `seconds`."""
    rng = random.Random(f"{seed}/{number}")
    free_at = dict.fromkeys(_processes(topology), 0.0)
    faults: list[Fault] = []
    deck = _deal(rng, topology)
    now = rng.uniform(0.2, 1.0)
    while now < seconds:
        fault = _fault(rng, next(deck), now, seconds, topology, free_at)
        if fault.at < seconds:
            faults.append(fault)
            for role in _touched(fault, topology):
                free_at[role] = fault.at + fault.seconds + _MARGIN_SECONDS
        now += min(rng.expovariate(1 / MEAN_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
    return sorted(faults, key=lambda fault: fault.at)


def _deal(rng: random.Random, topology: Topology) -> Iterator[Kind]:
    """Every kind once, then the frequent ones, and again."""
    impossible = {
        *([] if topology.small_disk else [Kind.DISK_FULL]),
        *([] if topology.failing_syncs else [Kind.SYNC_FAILS]),
    }
    kinds = [kind for kind in Kind if kind not in impossible]
    while True:
        yield from rng.sample(kinds, len(kinds))
        yield from rng.sample(_FREQUENT, len(_FREQUENT))


def _processes(topology: Topology) -> list[str]:
    return [*topology.storage, *topology.servers, ZOOKEEPER, *topology.clients]


def _touched(fault: Fault, topology: Topology) -> tuple[str, ...]:
    """The processes that nobody else may touch meanwhile."""
    if fault.kind in _TIER:
        return topology.storage if fault.target == "storage-*" else topology.servers
    return (fault.target,) if fault.kind in _WHOLE_ROLE else ()


def _fault(
    rng: random.Random,
    kind: Kind,
    now: float,
    end: float,
    topology: Topology,
    free_at: dict[str, float],
) -> Fault:
    """One fault of a kind: now, or as soon as the processes it is for are free."""
    low, high = _SECONDS[kind]
    seconds = min(rng.uniform(low, high), max(end - now, low))
    match kind:
        case Kind.KILL | Kind.PAUSE | Kind.TERMINATE:
            # Kinds of roles are equally likely, not roles.
            groups = (topology.storage, topology.servers, topology.clients, (ZOOKEEPER,))
            target = min(
                rng.sample(group := rng.choice(groups), len(group)), key=lambda role: max(now, free_at[role])
            )
            return Fault(max(now, free_at[target]), seconds, kind, target)
        case Kind.ROLLING | Kind.KILL_ALL:
            target, roles = rng.choice([("storage-*", topology.storage), ("server-*", topology.servers)])
            return Fault(max(now, *(free_at[role] for role in roles)), seconds, kind, target)
        case Kind.SYNC_FAILS:
            target = topology.failing_syncs or ""
            return Fault(max(now, free_at[target]), seconds, kind, target)
        case Kind.DISK_FULL:
            return Fault(now, seconds, kind, topology.small_disk or "")
        case Kind.EXPIRE:
            source = rng.choice([*topology.servers, *topology.clients])
            return Fault(now, seconds, kind, ZOOKEEPER, source, then_reset=rng.random() < 0.5)
        case Kind.LATE_OWNER:
            return Fault(now, seconds, kind, "storage-*", rng.choice(topology.servers))
        case Kind.ISOLATE:
            target = rng.choice([*topology.storage, *topology.servers])
            return Fault(now, seconds, kind, target, then_reset=rng.random() < 0.5)
    source, target = rng.choice(topology.pairs())
    return Fault(
        now,
        seconds,
        kind,
        target,
        source,
        way=rng.choice(["towards", "back from"]) if kind is Kind.HALF_OPEN else "",
        latency_ms=rng.choice([20, 100, 400]) if kind is Kind.LATENCY else 0,
        bytes_per_s=rng.choice([2_000, 20_000]) if kind is Kind.SLOW else 0,
        then_reset=kind in (Kind.HALF_OPEN, Kind.BLOCK) and rng.random() < 0.5,
    )
