"""What a majority of an old replica set holds. Pure.

The decision is the quorum check of the reference with one reading: a replica that is not heard from, or whose
disk is known to be lost, may hold anything, so it is *absent*: it can turn a minority into a majority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Decision(NamedTuple):
    """`resolved`: the closing high-water mark, if it is decided; else `open_mark`: the mark that could be
    committed."""

    resolved: int | None
    open_mark: int | None


def decide(marks: Sequence[int], absent: int, quorum: int) -> Decision:
    """Find the highest mark that a quorum of the old replicas reaches.

    `marks` are the last transaction ids of the old replicas that are present (any order), `absent` the number
    of old replicas that could hold anything. A mark X is supported by every replica that holds X. Walking
    down, the first mark that could be supported by a quorum decides: it is the result if the quorum is really
    there, else nothing is decided, because the absent ones may have acknowledged it.
    """
    for mark in sorted(set(marks), reverse=True):
        supporters = sum(other >= mark for other in marks)
        if supporters >= quorum:
            return Decision(mark, None)
        if supporters + absent >= quorum:
            return Decision(None, mark)
    return Decision(None, None)
