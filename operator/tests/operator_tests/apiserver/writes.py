"""What makes two writes of two runs the same write: what is done, and what stood in the status as being under
way when it was planned.

Names that differ from run to run (namespace, uids, keys) and what is only told to people (proofs, counts,
times) are no part of it. Of a status only what is read back after a crash is: the key, the operation under
way, which replica of a migration is under way.
"""

from __future__ import annotations

import re

from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.migration import MoveState, PartitionMove, WaltzMigrationStatus
from waltz_operator.model.actions import Action, SetStatus
from waltz_operator.model.snapshot import Snapshot
from waltz_operator.model.task import FINISHED_STATES

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def write_identity(action: Action, snapshot: Snapshot) -> str:
    """Of a write that was planned on this snapshot."""
    line, proof = action.line, getattr(action, "proof", "")
    if proof:
        line = line.replace(proof, "")
    told = f" -> {remembered(action.status)}" if isinstance(action, SetStatus) else ""
    text = f"{_position(snapshot)} | {line}{told}"
    return _UUID.sub("<uuid>", text.replace(f".{snapshot.cluster.metadata.namespace}.svc", ".svc"))


def _position(snapshot: Snapshot) -> str:
    moves = (remembered(migration.status) for migration in snapshot.migrations)
    return "; ".join((remembered(snapshot.cluster.status), *moves))


def remembered(status: WaltzClusterStatus | WaltzMigrationStatus) -> str:
    """What of a status an operator reads back."""
    if isinstance(status, WaltzMigrationStatus):
        moves = (f"{one.partition} {one.source}>{one.target} {_stage(one)}" for one in status.partitions)
        return f"{status.phase}: {', '.join(moves)}"
    login = "" if status.zookeeper.login == "None" else f", login {status.zookeeper.login}"
    if status.cluster_key is None:
        return f"no key{login}"
    move = status.operation
    found = "rest" if move is None else f"{move.kind} {move.partition} {move.source}>{move.target}"
    return f"{found}{login}"


def _stage(move: PartitionMove) -> str:
    """Steps in between are only told: where a replica stands is seen, not remembered."""
    if move.state is MoveState.PENDING:
        return "pending"
    return "ended" if move.state in FINISHED_STATES else "under way"
