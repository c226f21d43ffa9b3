"""How much ZooKeeper takes in one request. Pure.

A server of ZooKeeper drops the connection of whoever sends more than `jute.maxbuffer`, without an answer: the
writer would learn that the connection was lost, connect again and send the same, without an end. So what is
too large is refused before it is sent. A reply has the data of a znode too: what is within this limit can
also be read by those who have the same limit, as clients of release 0.13.2.
"""

from collections.abc import Sequence

from waltz_cluster.errors import ZnodeTooLargeError
from waltz_cluster.store import CheckOp, CreateOp, DeleteOp, Op, SetOp

MAX_REQUEST_BYTES = 0xFFFFF
"""`jute.maxbuffer` where nobody has set it; the same on both sides."""
BATCH_BYTES = MAX_REQUEST_BYTES // 4
"""Of data in one transaction of many writes: small enough to leave ZooKeeper time for others."""
_AROUND_BYTES: dict[type[Op], int] = {CreateOp: 512, SetOp: 128, DeleteOp: 20, CheckOp: 20}
"""Around path and data of a write: head and version; the permissions of a new znode; the Stat with which the
data are read again."""


def size_of(ops: Sequence[Op]) -> int:
    """About how large the request is, and not less."""
    return sum(_AROUND_BYTES[type(op)] + len(op.path.encode()) + _data_bytes(op) for op in ops)


def check_size(ops: Sequence[Op]) -> None:
    """ZnodeTooLargeError, which names the write that is too large, or their number."""
    size = size_of(ops)
    if size <= MAX_REQUEST_BYTES:
        return
    largest = max(ops, key=_data_bytes)
    limit = f"ZooKeeper takes {MAX_REQUEST_BYTES} bytes (its default of jute.maxbuffer): nothing was written"
    if len(ops) > 1 and size_of([largest]) <= MAX_REQUEST_BYTES:
        raise ZnodeTooLargeError(
            f"{len(ops)} changes, the largest that of {largest.path}, are one request of {size} bytes, and {limit}. Make them for "
            "fewer partitions at a time"
        )
    raise ZnodeTooLargeError(
        f"{largest.path} would have {_data_bytes(largest)} bytes, and {limit}. A znode of the cluster grows with its partitions, "
        "nodes and preferences: remove some of what it lists, or spread the partitions over several clusters"
    )


def _data_bytes(op: Op) -> int:
    match op:
        case CreateOp() | SetOp():
            return len(op.data or b"")
        case DeleteOp() | CheckOp():
            return 0
