"""A brute-force world for recovery: replicas with real record lists, and an oracle that knows what was
acknowledged.

Written apart from the code it checks: it never calls `decide` or looks inside `Recovery`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from waltz_admin.copies import NodePartition
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId, SessionInfo
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import (
    Compare,
    Copy,
    Recovered,
    Refuse,
    SetLowWaterMark,
    Truncate,
    Wait,
)


def state(name: str, session_id: int, closing: int = UNRESOLVED) -> ReplicaState:
    return ReplicaState(PartitionId(0), name, session_id, closing)


def metadata(session_id: int, *states: ReplicaState) -> PartitionMetadata:
    return PartitionMetadata(1, session_id, {s.connect_string: s for s in states})


def stream(session: str, first: int, last: int) -> list[str]:
    return [f"{session}:{txid}" for txid in range(first, last + 1)]


class RuleBroken(Exception):
    """A storage node refused: the conditions of Set low-water mark or Append did not hold."""


@dataclass
class Node:
    """What a storage node keeps of one partition: records by id, and the persisted marks."""

    log: list[str] = field(default_factory=list)
    session: int = -1
    lwm: int = -1
    local_lwm: int = -1

    @property
    def max_txid(self) -> int:
        return len(self.log) - 1

    @property
    def info(self) -> SessionInfo:
        return SessionInfo(self.session, self.lwm, self.local_lwm)

    def copy(self) -> Node:
        return Node(list(self.log), self.session, self.lwm, self.local_lwm)

    def set_lwm(self, session: int, lwm: int) -> None:
        if self.max_txid > lwm or self.session > session or lwm < self.lwm or self.max_txid < self.local_lwm:
            raise RuleBroken(f"set low-water mark {lwm} of session {session} on {self}")
        self.session, self.lwm, self.local_lwm = session, lwm, self.max_txid

    def wipe(self) -> None:
        self.log, self.session, self.lwm, self.local_lwm = [], -1, -1, -1


def reported(node: Node) -> NodePartition:
    """What the node says on its admin port."""
    marks = (node.session, node.lwm, node.local_lwm)
    return NodePartition(PartitionId(0), *marks, True, True, node.max_txid, 0, node.session)


def answer(recovery: Recovery, nodes: dict[str, Node], name: str) -> None:
    recovery.answered(name, nodes[name].info, nodes[name].max_txid)


def take_step(recovery: Recovery, nodes: dict[str, Node], name: str, session: int) -> bool:
    """Let one replica do its next step; False when there is nothing to do."""
    node = nodes[name]
    step = recovery.next_step(name)
    match step:
        case Wait() | Recovered() | Refuse():
            return False
        case Truncate(keep):
            if keep < node.lwm:
                raise RuleBroken(f"truncate {name} to {keep} below its low-water mark {node.lwm}")
            del node.log[keep + 1 :]
            recovery.truncated(name, node.max_txid)
        case Compare(reference, first, last):
            compared = slice(first, last + 1)
            recovery.compared(name, reference, equal=nodes[reference].log[compared] == node.log[compared])
        case Copy(source, first, last):
            if first != node.max_txid + 1 or last > nodes[source].max_txid:
                raise RuleBroken(f"copy {first}..{last} from {source} to {name}")
            node.log.append(nodes[source].log[first])  # one record at a time: every point can be interrupted
            recovery.copied(name, first)
        case SetLowWaterMark(mark):
            node.set_lwm(session, mark)
            recovery.low_water_mark_set(name)
    return True


def run_until_stuck(
    recovery: Recovery, nodes: dict[str, Node], order: Sequence[str], session: int, limit: int | None = None
) -> int:
    """Round robin in `order`; stops when nobody has a step left, or after `limit` steps. Returns the
    steps."""
    steps = 0
    moved = True
    while moved:
        moved = False
        for name in order:
            if limit is not None and steps >= limit:
                return steps
            if take_step(recovery, nodes, name, session):
                moved = True
                steps += 1
                if steps > 1000:
                    raise RuleBroken("recovery does not end")
    return steps


def acknowledged(stored: Iterable[int], quorum: int) -> int:
    """The highest record that a quorum of voters stored: the worst case of what was acknowledged."""
    ranked = sorted(stored, reverse=True)
    return ranked[quorum - 1] if len(ranked) >= quorum else -1


def could_be_acknowledged(seen: Sequence[int], hidden: int, quorum: int, top: int) -> int:
    """Oracle: over all contents of `hidden` voters (lengths up to `top`), the highest mark ever
    acknowledged."""
    best = -1
    for guess in itertools.product(range(-1, top + 1), repeat=hidden):
        best = max(best, acknowledged([*seen, *guess], quorum))
    return best


def subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(len(names) + 1):
        yield from itertools.combinations(names, count)
