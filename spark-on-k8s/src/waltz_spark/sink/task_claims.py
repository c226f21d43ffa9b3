"""Claims: how one attempt of a Spark task records, in the log itself, that the task is its own from here on.

A claim is a transaction of the log partition that the task writes to. It takes a write lock on the task
(`claim_lock`), so two claims of one task are always seen in order, and it names the client whose later
transactions are the attempt's rows: client ids of the log are never used twice, and every transaction carries
the one that wrote it. Other programs leave claims out by their header. The header alone makes no claim:
`Claim.decode` checks every byte.

Pure: bytes and values, nothing else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from waltz_protocol.checksum import crc32
from waltz_protocol.locks import LockId

CLAIM_HEADER = 0x57434C4D
"""Header of a claim unless the option `claimHeader` is set: "WCLM" as four bytes."""

_FORMAT = "waltz-spark-claim/1"


@dataclass(frozen=True, slots=True)
class TaskKey:
    """One task of one write: what an attempt is an attempt at."""

    query: str
    """Id of the streaming query (kept in its checkpoint), or of the batch write."""
    batch: int
    """Number of the micro-batch; 0 in a batch write."""
    task: int
    """Number of the Spark partition."""

    def same_place(self, other: TaskKey) -> bool:
        """Whether both are attempts at the same place of the query, in whatever batch: they share the claim
        lock."""
        return self.query == other.query and self.task == other.task


@dataclass(frozen=True, slots=True)
class Claim:
    """The payload of a claim. `attempt` is unique among all attempts of all tasks."""

    key: TaskKey
    attempt: str
    client_id: int

    def encode(self) -> bytes:
        """A JSON object, stable in its order, with a checksum as its last field."""
        content = self._content()
        return b'%s,"check":%d}' % (content[:-1], crc32(content))

    def _content(self) -> bytes:
        """Without the checksum: as earlier releases wrote it. They leave the checksum unread."""
        return json.dumps(
            {
                "format": _FORMAT,
                "query": self.key.query,
                "batch": self.key.batch,
                "task": self.key.task,
                "attempt": self.attempt,
                "client": self.client_id,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """The claim in a payload; None when it is something else, because anybody may use the header. A claim
        is exactly the bytes that `encode` makes of it, with or without the checksum."""
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            return None
        match fields:
            case {
                "query": str(query),
                "batch": int(batch),
                "task": int(task),
                "attempt": str(attempt),
                "client": int(client),
            }:
                claim = cls(TaskKey(query, int(batch), int(task)), attempt, int(client))
                return claim if data in (claim.encode(), claim._content()) else None
        return None


def claim_lock(key: TaskKey) -> LockId:
    """The lock that claims of a task write and its rows read: the same in every batch, so that a claim of an
    old batch is seen too."""
    return LockId("waltz-spark-claim", _number("claim", key.query, str(key.task)))


def row_lock(key: TaskKey, fingerprint: bytes) -> LockId:
    """The lock of one row that has a view of its own: written by every attempt at the row, so that one of
    them succeeds. No other row of the task has this content (`attempt.admit`)."""
    occurrence = "0"  # earlier releases counted rows of equal content; their attempts may still be on the way
    return LockId(
        "waltz-spark-row",
        _number("row", key.query, str(key.batch), str(key.task), fingerprint.hex(), occurrence),
    )


def fingerprint(header: int, data: bytes) -> bytes:
    """What distinguishes rows: 16 bytes of a hash over header and payload."""
    digest = hashlib.blake2b(header.to_bytes(4, "big", signed=True), digest_size=16)
    digest.update(data)
    return digest.digest()


def _number(*parts: str) -> int:
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
