"""Where an append is in the log. Errors have it as well, so it knows no other module. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Committed(NamedTuple):
    """A committed append: its place in the partition's log."""

    partition_id: int
    transaction_id: int
