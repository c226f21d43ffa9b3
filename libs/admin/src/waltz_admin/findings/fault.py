"""What to do about a partition whose server reports why it is not open. Pure.

The server knows the state of its own session best. A fault lasts until somebody settles what its reason
names; the other states end on their own, or when those whom the reason names are back.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.findings.finding import Finding, Rule, Severity, limited
from waltz_admin.findings.undecided import IDS
from waltz_admin.not_open import NotOpen
from waltz_cluster.older_copy import is_evidence
from waltz_cluster.quorum import alike

ZOOKEEPER_OLDER = Rule(
    "zookeeper-older",
    Severity.STOPPED,
    "Storage nodes prove that ZooKeeper was restored from an older copy.",
    health="fault",
    alerts=("WaltzPartitionUnavailable",),
)
FAULT = Rule(
    "fault",
    Severity.STOPPED,
    "What the replicas hold, or ZooKeeper holds about them, contradicts itself.",
    health="fault",
    alerts=("WaltzPartitionUnavailable",),
)

STEP_OF_OLDER = (
    "restore ZooKeeper's data from a newer copy, or rebuild them from what the nodes hold: "
    f"`waltz zk accept-restored -p {IDS} --dry-run`, then without it; remove nothing from a node before"
)
_STEP_OF_FENCE = (
    "lower the fences, one node at a time, while all other storage nodes answer: stop the node, "
    f"`waltz storage lower-fence DIR -p {IDS} --dry-run`, then with `--yes` in its place, and start it"
)
_STEP_OF_TWO_HISTORIES = (
    "find out what was put back before anything is reset: if it was the disk of one node, stop that node, "
    "`waltz storage restore-reset DIR` on its directory, and start it: it is filled then; if it was ZooKeeper, reset nothing, "
    "and see docs/operations.md"
)
_KEEP_THE_SERVER = (
    "do not stop or restart the server that reports this, and give the partition to no other one, until what follows is done: what "
    "it has acknowledged is known to it alone, and the next one would open without that. Then restart it, which ends the fault. First "
)
STEP_OF_METADATA = (
    "restore ZooKeeper's data from a copy (docs/operations.md has the way); empty, reset and remove nothing on the nodes: only "
    "they know what was committed"
)
_STEP_OF_RECORDS = "bring back nodes and disks that are missing, with the data they have; empty, reset and remove none; see docs/operations.md"
_STEP_OF_OTHERS = (
    "settle what the reason names: nothing opens it before, and nothing of it is changed until then; "
    f"{_STEP_OF_RECORDS}; restart its server when they are back"
)
_TWO_HISTORIES = ("in which no majority took part", "and hold different records")


def case_of_fault(reason: str) -> tuple[Rule, str]:
    """The rule that a fault is a case of, and the next step, by the words in which the server gives its
    reason. Two histories come first: their reason names a session that a node has completed, too."""
    if any(words in reason for words in _TWO_HISTORIES):
        return FAULT, _STEP_OF_TWO_HISTORIES
    if is_evidence(reason):
        return ZOOKEEPER_OLDER, STEP_OF_OLDER
    if reason.startswith("the fences of too many replicas"):
        return FAULT, _STEP_OF_FENCE
    lost = reason.startswith("partition metadata ")
    if "this server" in reason:
        return FAULT, _KEEP_THE_SERVER + (STEP_OF_METADATA if lost else _STEP_OF_RECORDS)
    return FAULT, STEP_OF_METADATA if lost else _STEP_OF_OTHERS


def step_of_not_open(reported: NotOpen | None) -> str:
    """The next step where enough replicas answer and the server reports no fault. None: it has no such
    report, so it may be in fault all the same."""
    match None if reported is None else reported.state:
        case None:
            return "wait for the recovery, unless the server's /health page shows a fault: its reason says what to do"
        case "no_quorum":
            return (
                "see to it that its server reaches the nodes, which answer here (`waltz cluster check-connectivity`); "
                "it opens then"
            )
        case "undecidable":
            return "bring back the replicas that its server names, with the data they have"
        case _:
            return "wait for the recovery; if this reason stays, read the server's log"


def lost_metadata(status: ClusterStatus) -> Iterable[Finding]:
    """Of partitions that are not known to be closed: their servers have them open, and the next store session
    does not open."""
    lost = [one for one in status.partitions if one.metadata_lost and not one.closed]
    for ids, why in alike({one.partition_id: one.metadata_lost for one in lost}).items():
        found = [one for one in lost if one.metadata_lost == why]
        until = "it takes writes until its store session ends"
        yield Finding(
            FAULT,
            f"{'partition' if len(found) == 1 else 'partitions'} {ids}: {why}; "
            f"{until if all(one.healthy for one in found) else 'the next store session does not open'}",
            f"do not restart its server before: no store session opens without the metadata; {STEP_OF_METADATA}",
            limited([f"partition {r.partition_id}: {r.metadata_lost}" for r in found]),
            tuple(one.partition_id for one in found),
            (),
            tuple(dict.fromkeys(str(one.server) for one in found if one.server is not None)),
        )
