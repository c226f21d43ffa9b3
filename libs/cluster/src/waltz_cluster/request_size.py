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
_OP_BYTES = 512
"""Around path and data: heads, versions and permissions; the Stat in a reply."""


def size_of(ops: Sequence[Op]) -> int:
    """About how large the request is, and not less."""
    return sum(_OP_BYTES + len(op.path.encode()) + _data_bytes(op) for op in ops)


def check_size(ops: Sequence[Op]) -> None:
    """ZnodeTooLargeError, which names the largest of the writes."""
    size = size_of(ops)
    if size <= MAX_REQUEST_BYTES:
        return
    largest = max(ops, key=_data_bytes)
    others = f" with {len(ops) - 1} other writes" if len(ops) > 1 else ""
    raise ZnodeTooLargeError(
        f"{largest.path} would have {_data_bytes(largest)} bytes, which makes a request{others} of {size} bytes, and "
        f"ZooKeeper takes {MAX_REQUEST_BYTES} bytes (its default of jute.maxbuffer): nothing was written. A znode of the "
        "cluster grows with its partitions, nodes and preferences: remove some of what it lists, or spread the "
        "partitions over several clusters"
    )


def _data_bytes(op: Op) -> int:
    match op:
        case CreateOp() | SetOp():
            return len(op.data or b"")
        case DeleteOp() | CheckOp():
            return 0
