"""The committed mark of a partition: the last transaction that a quorum holds, and the limit of what may
leave (rule D1). Pure.

There are three facts about it on a server, each with one owner, and none is a copy of another one:

* `Votes.committed`: what the votes of one session prove. It is ahead of the others while a frame of which a
  quorum holds only a part is not reported yet, and ends with its session.
* the mark of the store (`QuorumPartitionStore.high_water_mark`): what the store has reported as committed. It
  outlives sessions, and no later recovery may end below it.
* the mark of the partition (`Partition.high_water_mark`): up to where the locks of what was committed are in
  the lock table. All that leaves for clients is measured against it: feeds, data, answers to mounts and
  flushes.

The second and the third are a `CommittedMark` each. They differ inside one call only, that of
`StoreListener.committed` or `session_opened`, and once the partition is closed or has a fault, which closes
it.
"""

from __future__ import annotations

from typing import Protocol


class CommittedMarkError(Exception):
    """The mark would go down."""


class ReadableMark(Protocol):
    """A `CommittedMark` as those see it who do not own it."""

    @property
    def txid(self) -> int: ...

    @property
    def known(self) -> bool: ...


class CommittedMark:
    """A number that only rises. Whoever made it is its only writer; all others hold it as a
    `ReadableMark`."""

    __slots__ = ("known", "txid")

    def __init__(self) -> None:
        self.txid = -1
        """The last committed transaction; -1 while there is none, and while it is not known: nothing is below
        it then."""
        self.known = False
        """Whether a recovery has found out where the log ends."""

    @property
    def value(self) -> int | None:
        """The mark; None while it is not known."""
        return self.txid if self.known else None

    def rise_to(self, txid: int) -> None:
        """A recovery ended at `txid`, or everything up to it was committed; `CommittedMarkError` if it is
        lower."""
        if txid < self.txid:
            raise CommittedMarkError(f"the committed mark cannot go back from {self.txid} to {txid}")
        self.txid = txid
        self.known = True
