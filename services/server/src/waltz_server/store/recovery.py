"""Recovery of a partition at the start of a store session: a pure state machine.

Events go in (answers of replicas, results of steps, failures, metadata written), and `next_step` says what to
do with each replica. It follows docs/recovery.md, with these rules first:

* A1: a replica that ZooKeeper lists as UNRESOLVED but whose node reports an older session (lost or restored
  disk), or less than its own marks promise, is *absent* for the old quorum: neither supporter nor opponent.
  It is not touched until the high-water mark is resolved, then it is refilled.
* A2: nothing is resolved to -1 by default, nothing is truncated below a mark a node reports, and nothing at
  all is truncated before the mark is resolved (a tail that is certainly void may be cut to take part in
  copying).
* A8: what a node wrote down and ZooKeeper does not know is a fault (`waltz_cluster.older_copy`); a session
  that nobody is listed for, not before the last listed one, counts with all that the node holds: the listing
  may be lost. Not if no majority can have taken part in it, by what the others answer: then it holds what it
  copied from them, or is of another history, which is a fault.
* Keep more: while copies can be had, the longest log that is present is raised to a quorum, and only then
  decided. That makes undecidable recoveries decidable (as in the reference), and it never drops a tail that
  could be kept, also after an operator had to forget a replica.
* A3: recovery is complete when metadata that lists a quorum as (this session, UNRESOLVED) has been *written*.

The very first session (metadata without replica states). Metadata is written before the first append of every
session, so genuine metadata without states means that nothing was ever acknowledged. The danger is metadata
that was lost or made again. The rule has three parts:

1. A missing znode is created only when ZooKeeper's child counters prove that no partition's metadata was ever
   deleted (the owner of this machine checks that before a session id is taken).
2. One record, one mark above -1 or a session id from the future on *any* node that answers is a fault;
   nothing is touched.
3. Otherwise -1 needs a quorum of the assigned replicas that positively answered "no record, no mark", after
   the others had a short time to object.

Why a quorum and not all: an acknowledged record lies on a quorum, and two quorums share a node. So a wrong -1
needs, at the same time, metadata that was lost without a trace, a disk that was lost without a trace, and
every other witness absent. Even then nothing is destroyed: a late replica with records or marks above what is
resolved is refused, never truncated, and what lies under a mark that ZooKeeper does not vouch for is compared
with the log before it is kept. Asking for all replicas would be safer by one disk in that triple failure, and
a fresh cluster with one node down could not start, which it can in release 0.13.2.

SET LOW-WATER MARK ORDER. For a replica listed UNRESOLVED it is sent only after it holds everything resolved:
its node then continues to report the old session if copying is interrupted, and rule A1 keeps protecting. For
a replica that is new or recorded as closed it is sent first, so that an interrupted copy is not thrown away.

COMPARE. Before anything of a replica is kept, its last kept record is compared (transaction id and ReqId)
with that of a reference replica. A difference means a fork, made by someone who broke the rules above; the
replica is refused. The last record proves all before it within one session, whose owner numbered each
append once. A voter that missed a session of the other (ZooKeeper forgot it) is compared in all records that
its own session has not decided: an append that a client sent again has its ReqId in both logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from waltz_cluster.older_copy import evidence, last_listed
from waltz_cluster.quorum import quorum_of, shortage
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.types import UNRESOLVED, SessionInfo
from waltz_server.store.histories import Histories
from waltz_server.store.quorum import decide
from waltz_server.store.recovery_replica import Kind, RecoveringReplica, by_session, cap_marks, classify
from waltz_server.store.recovery_steps import (
    Compare,
    Condition,
    Copy,
    Recovered,
    Refuse,
    SetLowWaterMark,
    Step,
    Truncate,
    Wait,
)
from waltz_server.store.references import References, comparison
from waltz_server.store.replica_states import states_after_recovery


class Recovery:
    """One recovery of one partition. Its owner is the store session; all methods are synchronous and pure."""

    def __init__(
        self,
        *,
        partition_id: int,
        session_id: int,
        replicas: Sequence[str],
        metadata: PartitionMetadata,
        acknowledged: int = -1,
        recorded_session: int | None = None,
    ) -> None:
        """`metadata` is what ZooKeeper holds since this session took its id, `recorded_session` the one it
        held before (else the next lower); `replicas` the assigned ones; `acknowledged` what this server's own
        sessions know to be committed."""
        self.partition_id = partition_id
        self._acknowledged = acknowledged
        self.session_id = session_id
        self.resolved: int | None = None
        self.fault: str | None = None
        self.complete = False
        self.outdated = False
        """Since the fault was found a replica has answered something else: the next session may find none."""
        self._metadata = metadata
        before = session_id - 1 if recorded_session is None else recorded_session
        self._recorded = PartitionMetadata(metadata.generation, before, metadata.replicas)
        self._last_listed = last_listed(metadata)
        self._replicas = {name: RecoveringReplica(name, metadata.replicas.get(name)) for name in replicas}
        self._first = not metadata.replicas
        self._quorum = quorum_of(len(self._replicas))
        self._old_quorum = quorum_of(len(metadata.replicas))
        self._histories = Histories(
            self._replicas, session_id=session_id, last_listed=self._last_listed, quorum=self._quorum
        )
        self._references = References(
            self._replicas, self._histories, session_id=session_id, last_listed=self._last_listed
        )
        self._gathering = True
        self._target: int | None = None
        self._support_was_stable = False

    # ---- events

    def answered(self, name: str, info: SessionInfo, max_txid: int) -> None:
        """A node answered Last session info and Max transaction id of this session."""
        replica = self._replicas[name]
        if self.fault is not None and replica.heard:
            self.outdated = self.outdated or (info, max_txid) != (replica.info, replica.max_txid)
        replica.info, replica.max_txid, replica.heard = info, max_txid, True
        replica.changes += 1
        replica.kind, replica.mark, replica.vouched = classify(
            replica.state, info, max_txid, self._last_listed
        )
        if info.session_id != self.session_id and replica.vouched and replica.kind is not Kind.LOST:
            replica.before = info.session_id
        replica.good_mark = replica.mark
        replica.unreadable = False
        replica.compared = replica.marked = replica.capped = False
        replica.reason = ""
        if (newer := self.knows_more(name, info, max_txid)) is not None:
            self.proved(name, newer)
        if self.resolved is None:
            answered = [one for one in self._replicas.values() if one.answered]
            cap_marks(
                answered, self._last_listed, self._recorded.session_id, self._histories.last_with_a_majority()
            )
        self._evaluate()

    def knows_more(self, name: str, info: SessionInfo, max_txid: int) -> str | None:
        """What the node's answer proves against ZooKeeper's metadata (A8); None for nothing."""
        if info.session_id == self.session_id and self._replicas[name].marking:
            return None
        return evidence(self._recorded, name, info, max_txid)

    def proved(self, name: str, newer: str) -> None:
        """The node is refused for what it knows more, and a session that is not complete yet is a fault."""
        self._raise_fault(f"{name} {newer}")
        self.refuse(name, f"it {newer}")

    def truncated(self, name: str, max_txid: int) -> None:
        """Truncate was answered; `max_txid` is what the node holds now."""
        replica = self._replicas[name]
        replica.max_txid = max_txid
        replica.mark = min(replica.mark, max_txid)
        replica.changes += 1
        self._evaluate()

    def _put_back(self, reason: str, newer: RecoveringReplica) -> None:
        """A fault; or, when this session may be written down by others already, `newer` is left out."""
        if any(one.marking for one in self._replicas.values()):
            self.refuse(newer.name, reason)
            return
        self._raise_fault(
            f"{reason}: a disk or ZooKeeper was put back to an earlier state. Nothing is cut from here on; stop the node whose disk was put "
            "back and run `waltz storage restore-reset` on it"
        )

    def compared(self, name: str, reference: str, *, equal: bool) -> None:
        """The records of a Compare step are the same on both sides, or not."""
        replica = self._replicas[name]
        older, newer = by_session(replica, self._replicas[reference])
        if not equal and not self.complete and (proof := self._histories.another(older, newer)) is not None:
            self._put_back(proof, newer)
            return
        if not equal and self._histories.void_above_a_later_mark(older, newer):
            self._evaluate()
            return
        replica.compared = equal
        replica.unreadable = replica.unreadable and not (equal and self.resolved is not None)
        if not equal:
            self.refuse(name, "its log differs from that of the other replicas (fork)")

    def copied(self, name: str, last_txid: int) -> None:
        """Records up to `last_txid` were appended with success."""
        replica = self._replicas[name]
        replica.max_txid = replica.mark = last_txid
        self._evaluate()

    def source_failed(self, name: str, source: str) -> None:
        """Reading from `source` failed: try the others for this replica first; the source keeps its own
        standing."""
        replica = self._replicas[name]
        replica.avoided.add(source)
        if all(other.name in replica.avoided for other in self._references.sources(replica, self.resolved)):
            replica.avoided.clear()
        if self.resolved is None:
            self._replicas[source].unreadable = True
            self._evaluate()

    def reference_failed(self, name: str, reference: str) -> None:
        """Replica `name` could not be compared with `reference`, which did not deliver the record.

        The reference loses that rank until it has answered again, and has to be compared with another one
        itself before it counts as recovered: so one node that cannot read holds up nobody, and nobody goes
        uncompared.
        """
        if self.resolved is None:
            self.source_failed(name, reference)
            return
        other = self._replicas[reference]
        other.unreadable = True
        other.compared = False
        if not other.listed:
            other.marked, other.withdrawn = False, True

    def low_water_mark_set(self, name: str) -> None:
        """Set low-water mark was answered with success. It counts unless the replica failed as a reference
        meanwhile."""
        replica = self._replicas[name]
        replica.marked = not replica.withdrawn

    def failed(self, name: str, reason: str) -> None:
        """The replica cannot be reached or used; it is absent until it answers again."""
        replica = self._replicas[name]
        replica.changes += 1
        replica.kind = replica.refused = None
        replica.reason = reason
        self._evaluate()

    def refuse(self, name: str, reason: str) -> None:
        """Leave the replica out of this session, untouched."""
        replica = self._replicas[name]
        replica.refused = reason
        replica.reason = reason
        self._evaluate()

    def gather_over(self) -> None:
        """Everybody had the time to answer: copying between replicas may begin before the mark is
        resolved."""
        self._gathering = False
        self._evaluate()

    def metadata_written(self, metadata: PartitionMetadata) -> None:
        """ZooKeeper holds `metadata` for certain: who is listed as (this session, UNRESOLVED) may vote."""
        self._metadata = metadata
        for name, replica in self._replicas.items():
            state = metadata.replicas.get(name)
            if state is not None and (state.session_id, state.closing_high_water_mark) == (
                self.session_id,
                UNRESOLVED,
            ):
                replica.listed = True
        if sum(replica.listed for replica in self._replicas.values()) >= self._quorum:
            self.complete = True

    # ---- questions

    def next_step(self, name: str) -> Step:
        """What to do with this replica now. Doing nothing is always safe."""
        replica = self._replicas[name]
        if replica.refused is not None:
            return Refuse(replica.refused)
        if not replica.answered or self.fault is not None:
            return Wait()
        if self.resolved is None:
            return self._step_before_resolved(replica)
        step = self._step_after_resolved(replica, self.resolved)
        if isinstance(step, Truncate | Copy | SetLowWaterMark) and self._is_any_to_be_compared(self.resolved):
            return Wait()
        if isinstance(step, SetLowWaterMark):
            replica.marking, replica.withdrawn = True, False
        return step

    @property
    def recovered(self) -> list[str]:
        """Replicas that hold exactly what is resolved."""
        return [name for name, replica in self._replicas.items() if replica.is_recovered(self.resolved)]

    @property
    def unlisted(self) -> list[str]:
        """Recovered replicas that metadata does not list yet."""
        return [name for name in self.recovered if not self._replicas[name].listed]

    @property
    def in_progress(self) -> list[str]:
        """Replicas that answered and are not recovered yet."""
        return [
            name for name, r in self._replicas.items() if r.answered and not r.is_recovered(self.resolved)
        ]

    @property
    def advances(self) -> bool:
        """Enough replicas answer, one of them holds what is resolved, and there is a step to do: with these
        alone it may become complete."""
        resolved, busy = self.resolved, False
        marks: list[int] = []
        for one in self._replicas.values():
            if one.answered and not isinstance(step := self._step_of(one), Refuse):
                marks.append(one.mark)
                busy = busy or not isinstance(step, Wait | Recovered)
        enough = len(marks) >= self._quorum and (resolved is None or max(marks) >= resolved)
        return busy and enough and self.fault is None

    def may_advance(self, unheard: int) -> bool:
        """Whether there are enough replicas together with others, `unheard` of them, that may answer yet."""
        usable = [
            r for r in self._replicas.values() if r.answered and not isinstance(self._step_of(r), Refuse)
        ]
        return unheard > 0 and len(usable) + unheard >= self._quorum and self.fault is None

    def is_listed(self, name: str) -> bool:
        return self._replicas[name].listed

    @property
    def quorum_recovered(self) -> bool:
        """A quorum of the assigned replicas is recovered: metadata may be written."""
        return len(self.recovered) >= self._quorum

    def metadata_after(self, current: PartitionMetadata) -> PartitionMetadata:
        """What to write over `current`; only after `resolved` is known and a quorum has recovered."""
        if self.resolved is None:
            raise ValueError("recovery is not resolved")
        clean = {name for name, replica in self._replicas.items() if replica.listed} | set(self.recovered)
        return states_after_recovery(
            current,
            partition_id=self.partition_id,
            session_id=self.session_id,
            replicas=list(self._replicas),
            clean=clean,
            resolved=self.resolved,
        )

    def condition(self) -> tuple[Condition, str]:
        """What the recovery waits for, and why, in one line that names the replicas concerned."""
        if self.complete:
            return Condition.COMPLETE, ""
        if self.fault is not None:
            return Condition.FAULT, self.fault
        refused = [f"{r.name}: {r.refused}" for r in self._replicas.values() if r.refused is not None]
        if len(self._replicas) - len(refused) < self._quorum:
            return Condition.FAULT, "; ".join(refused) or "no replica is assigned to the partition"
        answered = sum(replica.answered for replica in self._replicas.values())
        if answered < self._quorum and not self._gathering:
            silent = {r.name: "" if r.answered else r.refused or r.reason for r in self._replicas.values()}
            return Condition.NO_QUORUM, shortage(silent)
        if self.resolved is not None:
            return (
                Condition.COPYING,
                f"resolved at {self.resolved}, {len(self.recovered)} of {self._quorum} recovered",
            )
        if self._gathering:
            return Condition.GATHERING, f"{answered} of {len(self._replicas)} replicas answered"
        if any(not isinstance(self.next_step(name), Wait) for name in self._replicas):
            return Condition.COPYING, f"copying up to {self._target} to make the high-water mark decidable"
        names = self._metadata.replicas or self._replicas
        return Condition.UNDECIDABLE, f"the high-water mark is undecidable without {self._name_absent(names)}"

    def max_txid_of(self, name: str) -> int:
        """The last record that the replica said it holds, or was sent with success; -1 for none."""
        return self._replicas[name].max_txid

    def standing_of(self, name: str) -> tuple[int, int]:
        """Another value whenever what was read of the replica before may not be in its log any longer."""
        replica = self._replicas[name]
        return replica.changes, replica.mark

    def reason_of(self, name: str) -> str:
        return self._replicas[name].reason

    def refusal_of(self, name: str) -> str | None:
        """Why this session leaves the replica out; None if it does not."""
        return self._replicas[name].refused

    # ---- the decision

    def _evaluate(self) -> None:
        if self.resolved is not None or self.fault is not None:
            return
        if self._first:
            self._evaluate_first()
            return
        if self._gathering and any(r.info.session_id > self._last_listed for r in self._replicas.values()):
            return  # who has not answered yet may say that this session had no majority
        present = [
            self._replicas[name]
            for name in self._metadata.replicas
            if name in self._replicas and self._replicas[name].is_present
        ]
        absent = len(self._metadata.replicas) - len(present)
        decision = decide([replica.mark for replica in present], absent, self._old_quorum)
        # What cannot be read is given up only when the others can decide without it; else it is tried again.
        sources = [r.mark for r in present if not r.unreadable or decision.resolved is None]
        self._target = max(sources, default=None)
        if decision.resolved is None or self._target is None or decision.resolved < self._target:
            return  # copying upwards comes first: a tail is dropped only when nobody can give it
        unresolved = any(s.closing_high_water_mark == UNRESOLVED for s in self._metadata.replicas.values())
        if unresolved and not any(r.kind is Kind.VOTER and r.mark >= decision.resolved for r in present):
            return
        floor, witness = self._floor()
        if decision.resolved < floor:
            self._raise_fault(
                f"a quorum holds records up to {decision.resolved} only, but {witness} proves {floor} committed"
            )
            return
        self.resolved = decision.resolved

    def _evaluate_first(self) -> None:
        empty = sum(replica.answered for replica in self._replicas.values())  # a record, a mark raise a fault
        if self._acknowledged >= 0:
            self._raise_fault(
                f"partition metadata has no replica states, but {self._acknowledged} was acknowledged by this server"
            )
            return
        if empty == len(self._replicas) or (empty >= self._quorum and not self._gathering):
            self.resolved = -1

    def _floor(self) -> tuple[int, str]:
        """The highest mark known to be committed, and who says so."""
        floor, witness = self._acknowledged, "what this server acknowledged"
        for name, state in self._metadata.replicas.items():
            if state.closing_high_water_mark > floor:
                floor, witness = state.closing_high_water_mark, f"the recorded state of {name}"
        for name, replica in self._replicas.items():
            if replica.answered and replica.info.low_water_mark > floor:
                floor, witness = replica.info.low_water_mark, f"the low-water mark of {name}"
        return floor, witness

    def _raise_fault(self, reason: str) -> None:
        if self.fault is None and not self.complete:
            self.fault = reason

    # ---- steps

    def _step_of(self, replica: RecoveringReplica) -> Step:
        if self.resolved is None:
            return self._step_before_resolved(replica)
        return self._step_after_resolved(replica, self.resolved)

    def _step_before_resolved(self, replica: RecoveringReplica) -> Step:
        """Copying upwards makes an undecidable mark decidable: raise just enough of the nearest replicas."""
        target = self._target
        if self._gathering or self._first or target is None or not replica.is_present:
            return Wait()
        present = [r for r in self._replicas.values() if r.is_present]
        below = [r for r in present if r.mark < target]
        below.sort(key=lambda r: (r.kind is not Kind.VOTER, -r.mark, r.name))
        needed = max(0, self._old_quorum - (len(present) - len(below)))
        if len(present) < self._old_quorum or replica not in below[:needed]:
            return Wait()
        return self._raise_to(replica, target)

    def _step_after_resolved(self, replica: RecoveringReplica, resolved: int) -> Step:
        if replica.is_recovered(resolved):
            return Recovered()
        contradiction = self._contradiction(replica, resolved)
        if contradiction is not None:
            return Refuse(contradiction)
        limit = min(replica.mark, resolved)
        point = limit
        if not replica.vouched and replica.max_txid >= 0:
            point = max(0, limit)  # nothing but the records themselves says that they are of this log
        if point >= 0 and not replica.compared:
            if point > resolved:
                return Refuse(f"it holds records up to {replica.max_txid}, but the log has none yet")
            reference = self._references.reference(replica, point, resolved)
            if reference is None and (
                self._histories.is_in_doubt(replica) or not replica.is_present_with(point)
            ):
                return Wait()
            if reference is not None:
                return comparison(replica, self._replicas[reference], point)
        if replica.max_txid > limit:
            return Truncate(limit)
        if replica.mark < resolved:
            if (
                self._may_be_marked_early(replica)
                and not replica.marked
                and self._support_is_stable(resolved)
            ):
                return SetLowWaterMark(resolved)
            if replica.kind is Kind.NEW and not self._support_is_stable(resolved):
                return (
                    Wait()
                )  # records above its mark would be taken for those of a session that ZooKeeper forgot
            return self._raise_to(replica, resolved)
        if self._support_is_stable(resolved) or replica.kind is Kind.CLOSED:
            return SetLowWaterMark(resolved)
        return Wait()

    def _is_any_to_be_compared(self, resolved: int) -> bool:
        """Whether the records of a replica that knows a session after the last listed one are still to be
        compared: what that proves has to be found before it is written over."""
        return not self.complete and any(
            one.answered
            and one.info.session_id > self._last_listed
            and isinstance(self._step_after_resolved(one, resolved), Compare)
            for one in self._replicas.values()
        )

    def _raise_to(self, replica: RecoveringReplica, target: int) -> Step:
        if replica.max_txid > replica.mark:
            return Truncate(replica.mark)
        sources = self._references.sources(replica, self.resolved)
        if not sources:
            return Wait()
        source = sources[0]
        if replica.mark >= 0 and not replica.compared:
            return comparison(replica, source, replica.mark)
        return Copy(source.name, replica.mark + 1, min(source.mark, target))

    def _may_be_marked_early(self, replica: RecoveringReplica) -> bool:
        state = self._metadata.replicas.get(replica.name)
        closed = state is None or state.closing_high_water_mark != UNRESOLVED
        known = replica.compared or replica.max_txid < 0 or replica.info.session_id <= self._last_listed
        return closed and known and replica.mark >= replica.info.local_low_water_mark

    def _support_is_stable(self, resolved: int) -> bool:
        """Whether the next recovery would resolve the same, were this one interrupted now.

        What a closed replica copied before the decision is void again in the next session, until its
        low-water mark covers it. So nobody may get a low-water mark that depends on such copies alone.
        """
        if self.complete or self._first:
            return True
        stable = 0
        for name in self._metadata.replicas:
            replica = self._replicas.get(name)
            if replica is not None and replica.is_present and replica.mark >= resolved:
                stable += replica.kind is Kind.VOTER or replica.marked or replica.good_mark >= resolved
        self._support_was_stable = self._support_was_stable or stable >= self._old_quorum
        return self._support_was_stable

    def _contradiction(self, replica: RecoveringReplica, resolved: int) -> str | None:
        if replica.info.low_water_mark > resolved:
            return f"its low-water mark {replica.info.low_water_mark} is above the resolved mark {resolved}"
        if self._first and replica.max_txid > resolved:
            return f"it holds records up to {replica.max_txid}, but the log begins in this session"
        return None

    def _name_absent(self, names: Iterable[str]) -> str:
        parts = []
        for name in names:
            replica = self._replicas.get(name)
            if replica is None:
                parts.append(f"{name} (not assigned any longer)")
            elif not replica.answered:
                parts.append(f"{name} ({replica.reason})")
            elif replica.kind is Kind.LOST:
                parts.append(
                    f"{name} (its disk was lost or set back: session {replica.info.session_id}, "
                    f"last record {replica.max_txid})"
                )
        return "absent: " + (", ".join(parts) or "none")
