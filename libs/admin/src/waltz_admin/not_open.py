"""Why a partition takes no writes, in its server's words: the part *not open* of a server's report. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotOpen:
    """A partition that takes no writes: the state and the reason that its server's /health has for it."""

    partition: int
    state: str
    reason: str

    @property
    def fault(self) -> bool:
        """It opens when somebody has settled what the reason names, and not before."""
        return self.state == "fault"

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state
