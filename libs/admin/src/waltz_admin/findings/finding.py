"""What a rule finds: a sentence, the evidence for it, and the next step. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

MAX_EVIDENCE = 12
"""Lines of evidence for one finding; the rest are counted."""


class Severity(enum.StrEnum):
    """How urgent a finding is, the most urgent first."""

    STOPPED = "stopped"
    """Partitions take no writes."""
    REDUCED = "reduced"
    """Writes continue with less protection: one failure more may stop them."""
    SOON = "soon"
    """Nothing is wrong yet."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong. `name` never changes: documents, programs and links use it.

    `health`: the state in which a server's /health shows the same partitions, where it does. `alerts`: the
    alert rules of manifests/monitoring that fire for the same fact; `no_alert`: why there is none.
    """

    name: str
    severity: Severity
    meaning: str
    health: str = ""
    alerts: tuple[str, ...] = ()
    no_alert: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found. `finding` and `next_step` are for a person; commands in them are `waltz …` in
    backticks. `evidence`: the facts, one line each. `partitions`, `nodes`, `servers`: whom it concerns."""

    rule: Rule
    finding: str
    next_step: str
    evidence: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()


def limited(lines: Sequence[str]) -> tuple[str, ...]:
    """Evidence of bounded length."""
    if len(lines) <= MAX_EVIDENCE:
        return tuple(lines)
    return (*lines[:MAX_EVIDENCE], f"and {len(lines) - MAX_EVIDENCE} more like these")
