"""What an instance of a named producer knows of its sequence numbers in one partition. Pure (ADR 38)."""

from __future__ import annotations

import hashlib
import struct
from collections import deque

from waltz_client._internal.arguments import counted_number
from waltz_client.errors import UsageError
from waltz_cluster.serializers import Checkpoint

MAX_SEQUENCE = 2**31 - 1
"""It is the sequence number of a request id, of which those below 0 are not used."""
MAX_MILESTONES = 1024
"""The newest numbers in the log whose places are known; 16 bytes of memory and two integers each."""
CHECKPOINT_LAG = 5_000
"""Transactions between the end of the log and a checkpoint, at most: half of what a server looks through for
a number by default (`server.repeatWindow`)."""

_HEADER_AND_LENGTH = struct.Struct(">ii").pack


def check_sequence(sequence: int) -> int:
    """A number that an application gives to an append; UsageError."""
    number = counted_number("a sequence number", sequence)
    if not 0 <= number <= MAX_SEQUENCE:
        raise UsageError(f"a sequence number is 0 to {MAX_SEQUENCE}, not {number}")
    return number


def content_checksum(header: int, data: bytes) -> int:
    """What the request id of an append with a sequence number has in the place of the generation: 4 bytes of
    BLAKE2b over header, length of the data and data. (A CRC is constant for data that end with their own.)"""
    digest = hashlib.blake2b(_HEADER_AND_LENGTH(header, len(data)), digest_size=4)
    digest.update(data)
    return int.from_bytes(digest.digest(), "big", signed=True)


class SequenceMarks:
    """Up to where the log was searched for which numbers. Owner: the partition, on the loop.

    Invariants: everything between `origin` and `mark` was received in order, by this instance or before a
    checkpoint; `last` is the highest number there, -1 for none; `mark` only grows. No number is at or below
    `origin`, which grows until the first one is seen: where a partition did not answer when the producer was
    made it is -1 at first, and nobody can say more before the log was read.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.origin, self.mark, self.last = checkpoint
        self._milestones = deque([(self.mark, self.last)], maxlen=MAX_MILESTONES)

    def note(self, transaction_id: int, sequence: int) -> None:
        """The feed, which is in order, brings a number of the producer."""
        if self.last < 0:
            self._begins_behind(transaction_id - 1)
        else:
            self._milestones.append((transaction_id - 1, self.last))
        self.mark = transaction_id
        self.last = max(self.last, sequence)

    def received(self, mark: int) -> None:
        """The feed has come to here in order."""
        self.mark = max(self.mark, mark)
        if self.last < 0 and self.mark > self.origin + CHECKPOINT_LAG:
            self._begins_behind(self.mark)

    def _begins_behind(self, mark: int) -> None:
        self.origin = mark
        self._milestones.clear()
        self._milestones.append((mark, -1))

    def searched(self, sequence: int) -> int:
        """The largest mark known up to which the log does not hold a number."""
        if sequence > self.last:
            return self.mark
        for mark, last in reversed(self._milestones):
            if last < sequence:
                return mark
        return self.origin

    @property
    def checkpoint(self) -> Checkpoint:
        """What is written down: of a while ago, so that the next instance learns the places of the last
        numbers, and can send these again."""
        for mark, last in self._milestones:
            if mark >= self.mark - CHECKPOINT_LAG:
                return Checkpoint(self.origin, mark, last)
        return Checkpoint(self.origin, self.mark, self.last)
