"""A restart that is still to come, as a value. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Outstanding(NamedTuple):
    """A pod that has to be restarted, why, and what is in the way of it now (`waits`; empty: nothing)."""

    pod: str
    component: str
    why: str
    waits: str = ""
