"""The append of a row: which locks it takes, as of which transaction. Pure."""

from __future__ import annotations

from waltz_client import Append
from waltz_spark.sink.attempt import OutgoingRow
from waltz_spark.sink.task_claims import TaskKey, claim_lock, row_lock


def row_request(partition: int, key: TaskKey, row: OutgoingRow, claim: int) -> Append:
    """`claim`: the attempt's own claim, up to which it knows the log.

    A row without a view of its own reads the task's lock as of the claim. A row with one writes its own lock,
    as of its view, and not as of anything that the attempt does not know.
    """
    if row.as_of is None:
        return Append(
            partition,
            row.data,
            row.header,
            read_locks=(claim_lock(key),),
            append_locks=row.append_locks,
            as_of=claim,
        )
    own = row_lock(key, row.fingerprint)
    return Append(
        partition,
        row.data,
        row.header,
        write_locks=(*row.write_locks, own),
        read_locks=row.read_locks,
        append_locks=row.append_locks,
        as_of=min(row.as_of, claim),
    )
