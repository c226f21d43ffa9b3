"""What to do about a copy that the server of its partition refuses. Pure.

The server leaves it out, and touches nothing of it. It asks again now and then whether it is another copy.
"""

from __future__ import annotations

from waltz_cluster.older_copy import is_evidence


def step_of_refused(reason: str, ids: str) -> str:
    """The next step while the partition is open. `reason`: the server's; `ids`: the partitions. One that
    proves that something was restored closes the partition with the next session (rule A8)."""
    if is_evidence(reason):
        return (
            "settle it before the server of the partition is restarted, whose next store session does not open with it: if the "
            "disk was restored from a copy, stop the node, `waltz storage restore-reset DIR` on its directory, and start it: it is "
            "filled then; if ZooKeeper was restored from an older copy, reset nothing, and see docs/operations.md"
        )
    return (
        "its copy is kept as it is for you to look at; when what only it holds is not needed, and while the others are current: "
        f"`waltz storage remove-partition -p {ids} --delete-storage-files` and `add-partition` on that node: it is filled then"
    )


STEP_OF_TOO_MANY = (
    "the server refuses so many copies that the others cannot decide: empty, reset and remove none of them before you know "
    "which of them has what was committed; see docs/operations.md for disks, and for a ZooKeeper, that were restored"
)
