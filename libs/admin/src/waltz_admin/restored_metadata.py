"""The metadata of a partition made again from what its nodes hold, after ZooKeeper was restored from an older
copy (rule A8, ADR 8). Nobody is asked here, and nothing is written.

Let L be the last session that an intact copy wrote down; who wrote it down took part in it. Intact means that
the copy holds everything up to its own marks: one that a recovery marked early and did not fill knows a
session and holds nothing of it.

* Everything acknowledged before L lies on each of those who took part in L; what was acknowledged in L lies
  on a majority of the replicas of that time, all of them among those who took part and those who cannot be
  asked. Only these are listed, as UNRESOLVED: whoever else is the partition's replica in the older copy may
  have been taken out since, and would have a voice too many.
* Who cannot be asked (named as lost, without a copy, emptied, rolled back) counts as absent until it proves
  better (rule A1).
* If those who took part are too few to decide alongside the absent ones, others join the list, latest session
  first, but only as many as are all needed for a majority: so no decision is possible without everybody who
  took part in L.
* Appending needs a majority that wrote the session down (rule A3). So where a majority of the replicas is
  intact and wrote down an earlier session, L appended nothing, and neither did any session that only a
  minority reached: the copies from there on hold the same records as far as they go. If they do not, a disk
  was put back from a copy, and this is no older ZooKeeper alone (`Doubt`).

So that no later session goes unnoticed every known storage node must answer, or be named as lost, or as taken
out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, UnsafeChangeError
from waltz_cluster.older_copy import FENCE_REACH, evidence
from waltz_cluster.quorum import quorum_of
from waltz_cluster.serializers import PartitionMetadata, ReplicaState
from waltz_protocol.types import UNRESOLVED, PartitionId, SessionInfo


class NothingToAcceptError(AdminError):
    """No node knows more than ZooKeeper: there is nothing to be done."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """What is known of the storage nodes, for one partition."""

    known: Collection[str]
    """All that ZooKeeper knows, with or without the partition."""
    assigned: Collection[str]
    answering: Collection[str]
    held: Mapping[str, NodePartition]
    """The copy of each node that answers and has one. A copy that does not report its last record counts
    as silent."""
    lost: Collection[str] = ()
    """Nodes that a person names as lost: they may have been replicas."""
    removed: Collection[str] = ()
    """Nodes that a person names as taken out of the partition since the copy was made: they have no voice."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """No majority took part in the last session, so the records of those who did must be those of the others:
    every copy in `later` is to be compared with every one in `earlier`."""

    session_id: int
    later: Mapping[str, NodePartition]
    """Those who took part in it."""
    earlier: Mapping[str, NodePartition]
    """Those who completed the last session that a majority may have taken part in, or one after it."""
    resets: int
    """How many of `earlier` have to be reset so that no majority is left that speaks against the session."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What must be written for one partition, and why, replica by replica. `reassign`: nodes that are
    listed and that the assignment, older too, does not name; `unassign`: nodes that it names and that were
    taken out."""

    partition_id: int
    before: PartitionMetadata
    after: PartitionMetadata
    reasons: Mapping[str, str]
    reassign: tuple[str, ...]
    unassign: tuple[str, ...]
    doubt: Doubt | None = None
    """What has to be compared before it is written."""


def knows_more(before: PartitionMetadata, held: Mapping[str, NodePartition]) -> dict[str, str]:
    """What nodes prove to be missing in ZooKeeper's metadata, by node."""
    found = {}
    for node, copy in held.items():
        info = SessionInfo(copy.session_id, copy.low_water_mark, copy.local_low_water_mark)
        last = copy.max_transaction_id
        text = evidence(before, node, info, copy.low_water_mark if last is None else last)
        if text is not None:
            found[node] = text
    return found


def rebuild(partition_id: int, before: PartitionMetadata, nodes: Nodes) -> Rebuilt:
    """The metadata made again. NothingToAcceptError; UnsafeChangeError, which says what to do, when it cannot
    be safe."""
    return _Rebuild(partition_id, before, nodes).result()


def is_whole(copy: NodePartition) -> bool:
    """Whether it holds everything up to its own marks."""
    return _last(copy) >= max(copy.low_water_mark, copy.local_low_water_mark)


def is_intact(before: PartitionMetadata, node: str, copy: NodePartition) -> bool:
    """Whole, and of a session no earlier than the one that ZooKeeper lists its node for."""
    recorded = before.replicas.get(node)
    known = -1 if recorded is None else recorded.session_id
    return is_whole(copy) and copy.session_id >= max(0, known)


def _last(copy: NodePartition) -> int:
    return -1 if copy.max_transaction_id is None else copy.max_transaction_id


class _Rebuild:
    """One decision."""

    def __init__(self, partition_id: int, before: PartitionMetadata, nodes: Nodes) -> None:
        self._partition_id = partition_id
        self._before = before
        self._nodes = nodes
        self._held = {n: c for n, c in nodes.held.items() if c.max_transaction_id is not None}
        self._members = {*nodes.assigned, *before.replicas} - {*nodes.removed}
        self._intact = {n: c for n, c in self._held.items() if is_intact(before, n, c)}
        self._session = max((copy.session_id for copy in self._intact.values()), default=-1)
        self._took_part = {n for n, c in self._intact.items() if c.session_id == self._session}

    def result(self) -> Rebuilt:
        if not knows_more(self._before, self._nodes.held):
            raise NothingToAcceptError(
                f"partition {self._partition_id}: no node knows more than ZooKeeper (session {self._before.session_id})"
            )
        self._check_names()
        self._check_silent()
        absent = self._absent()
        joined = self._joined(len(absent))
        self._check_enough(absent, joined)
        self._check_longer(absent)
        return self._rebuilt(absent, joined)

    def _is_marked_early(self, copy: NodePartition) -> bool:
        """A recovery wrote its session down here first and did not come to fill it: it had no voice before
        that."""
        return copy.local_low_water_mark <= _last(copy) < copy.low_water_mark

    def _unsafe(self, text: str) -> UnsafeChangeError:
        return UnsafeChangeError(f"partition {self._partition_id}: {text}")

    def _check_names(self) -> None:
        named = {*self._nodes.lost, *self._nodes.removed}
        unknown = sorted(named - {*self._nodes.known, *self._members, *self._before.replicas})
        if unknown:
            raise self._unsafe(
                f"{', '.join(unknown)} is not known to ZooKeeper: `waltz zk add-storage-node` first"
            )
        living = sorted(n for n in named & self._nodes.held.keys() if self._nodes.held[n].session_id >= 0)
        if living:
            raise self._unsafe(f"{', '.join(living)} is named as lost or removed, and answers with a copy")

    def _check_silent(self) -> None:
        unclear = sorted(self._nodes.held.keys() - self._held.keys())
        if unclear:
            raise self._unsafe(
                f"{', '.join(unclear)} answers without saying what its last record is, and counts as silent; bring back: "
                f"{', '.join(unclear)} with its storage port, or stop it and name it with --lost if its disk is lost for good"
            )
        asked = {*self._nodes.known, *self._members} - {*self._nodes.lost, *self._nodes.removed}
        silent = sorted(asked - {*self._nodes.answering})
        if silent:
            raise self._unsafe(
                f"{', '.join(silent)} does not answer, and may know a later session; bring back: {', '.join(silent)}, or name "
                "it with --lost if its disk is lost for good"
            )

    def _absent(self) -> list[str]:
        """Who may have taken part and cannot be asked what it held."""
        found = {node for node in {*self._members, *self._nodes.lost} if node not in self._held}
        for node, copy in self._held.items():
            damaged = node not in self._intact and not self._is_marked_early(copy)
            concerned = (
                node in self._members or node in self._nodes.lost or copy.session_id >= self._session >= 0
            )
            if damaged and concerned and node not in self._nodes.removed:
                found.add(node)
        return sorted(found)

    def _joined(self, absent: int) -> list[str]:
        """Who is listed besides, so that those who answer can decide; two at least, so that one lost disk
        leaves another."""
        others = [node for node in self._intact if node not in self._took_part]
        others.sort(key=lambda n: (-self._intact[n].session_id, -_last(self._intact[n]), n))
        if absent:
            others += sorted(n for n, copy in self._held.items() if self._is_marked_early(copy))
        missing = max(2, absent + 1) - len(self._took_part)
        return others[: max(0, missing)]

    def _check_enough(self, absent: Sequence[str], joined: Sequence[str]) -> None:
        if not self._took_part:
            if all(copy.session_id < 0 for copy in self._held.values()):
                return  # all were reset: it stays closed, and a person may name the copy to keep
            raise self._unsafe(
                "no copy that answers holds everything up to its own marks, so it is not known what was acknowledged; "
                f"bring back: {', '.join(absent) or 'an earlier replica'}"
            )
        present = len(self._took_part) + len(joined)
        if present > len(absent):
            return
        raise self._unsafe(
            f"{present} of its replicas remember a session, and {len(absent)} have no copy that shows what they knew; "
            f"bring back: {', '.join(absent) or 'none'}. Name with --removed a node that was only taken out since the copy was made; for "
            "any other node named there, everything that only it holds is lost"
        )

    def _check_longer(self, absent: Sequence[str]) -> None:
        longest = max((_last(self._intact[node]) for node in self._took_part), default=-1)
        others = self._intact.keys() - self._took_part
        longer = sorted(node for node in others if _last(self._intact[node]) > longest)
        needed = quorum_of(len(self._replicas(absent)))
        if len(longer) >= needed and len(self._took_part) < needed:
            raise self._unsafe(
                f"{', '.join(sorted(self._took_part))}, no majority, completed session {self._session}, but "
                f"{', '.join(longer)}, a majority, hold more records: nothing is changed. If a disk was put back from a copy, "
                "stop its node, run `waltz storage restore-reset` on its directory, and start it. Else restore a later copy of "
                "ZooKeeper's data. Only if it is certain that no server ever wrote in that session, remove and add "
                "the copy there"
            )

    def _replicas(self, absent: Collection[str]) -> set[str]:
        """All that may have been one in the last session."""
        return {*self._members, *absent, *self._took_part}

    def _doubt(self, absent: Collection[str]) -> Doubt | None:
        replicas = self._replicas(absent)
        earlier = {n: c for n, c in self._intact.items() if n in replicas and n not in self._took_part}
        needed = quorum_of(len(replicas))
        if len(earlier) < needed:
            return None
        # Of all others it is not known that they took no part in it.
        sessions = [earlier[n].session_id if n in earlier else self._session for n in replicas]
        had_majority = sorted(sessions, reverse=True)[needed - 1]
        return Doubt(
            self._session,
            {n: self._intact[n] for n in sorted(self._took_part)},
            {n: c for n, c in sorted(earlier.items()) if c.session_id >= had_majority},
            len(earlier) - needed + 1,
        )

    def _rebuilt(self, absent: Sequence[str], joined: Sequence[str]) -> Rebuilt:
        decides = f"completed session {self._session}, the last one: decides"
        listed = dict.fromkeys(self._took_part, (self._session, UNRESOLVED, decides))
        for node in joined:
            listed[node] = self._joining(node, closed=bool(absent))
        for node in absent:
            listed[node] = max(self._session, 0), UNRESOLVED, self._why_absent(node)
        states = {
            node: ReplicaState(PartitionId(self._partition_id), node, session, closing)
            for node, (session, closing, _) in sorted(listed.items())
        }
        assigned = {*self._nodes.assigned}
        return Rebuilt(
            self._partition_id,
            self._before,
            PartitionMetadata(self._before.generation, self._top(), states),
            {node: reason for node, (_, _, reason) in listed.items()},
            tuple(sorted({*self._took_part, *joined} - assigned)),
            tuple(sorted(assigned & {*self._nodes.removed})),
            self._doubt(absent),
        )

    def _joining(self, node: str, *, closed: bool) -> tuple[int, int, str]:
        """Session, closing mark and reason. Closed: up to its own mark its log is that of all, so it differs
        from nobody."""
        copy = self._held[node]
        if node not in self._intact:
            last = _last(copy)
            return -1, last, f"was marked in session {copy.session_id} and not filled: good up to {last}"
        reason = f"completed session {copy.session_id} and none after it: needed for a majority"
        return copy.session_id, copy.low_water_mark if closed else UNRESOLVED, reason

    def _why_absent(self, node: str) -> str:
        copy = self._held.get(node)
        if copy is not None:
            return f"was emptied or rolled back (session {copy.session_id}, last record {_last(copy)}): counts as absent"
        if node in self._nodes.lost:
            return "is lost: counts as absent"
        return "does not hold the partition: counts as absent"

    def _top(self) -> int:
        """The session that ZooKeeper is to hold: no earlier than any that was given out, as far as the nodes
        know."""
        copies = self._nodes.held.values()
        top = max([self._before.session_id, *(copy.session_id for copy in copies)])
        fences = [copy.fence_session_id for copy in copies if copy.fence_session_id is not None]
        return max([top, *(fence for fence in fences if fence <= top + FENCE_REACH)])
