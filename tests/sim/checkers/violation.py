"""What a checker returns, and how grave each kind is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One broken promise: the name of the invariant (stable, for tables) and one line saying where it was
    seen."""

    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


GRAVITY: dict[str, tuple[str, ...]] = {
    "the simulator failed, nothing else can be believed": ("harness",),
    "lost": ("lost", "acknowledged", "node_kept", "disk", "journal", "witness", "database"),
    "diverged": (
        *("fork", "replicas", "checksum", "bytes", "dense", "foreign", "duplicate", "duplicate_req_id"),
        *("producer", "failed_committed", "failed_on_replica", "ownership", "directory_shared", "fence"),
        "carried_mark",
    ),
    "isolation and order": (
        *("serializable", "lost_update", "linearizable", "bank", "registers", "counters", "duty"),
        *("real_time", "pipeline_order", "own_view", "own_reads"),
    ),
    "what an application was given": (
        *(
            "feed_data",
            "feed_order",
            "feed_start",
            "feed_end",
            "payload",
            "client_ahead",
            "mark",
            "mark_stale",
        ),
        *("outcome_kind", "outcome_once", "outcome_early", "outcome_given", "lock_failure"),
        *("callback", "context_once", "context_ended", "on_application"),
    ),
    "a process": ("process_ended", "unhandled", "logged_error", "out_of_service"),
    "the detector": ("evicted", "eviction_pace", "eviction_rest", "registered", "replaced"),
    "liveness": ("progress", "feed_silent", "replicas_settle", "stuck", "leave"),
}
"""Kinds of violations, the gravest first: a report begins with it, and what may only follow from it comes
after."""

_RANKS = {name: rank for rank, names in enumerate(GRAVITY.values()) for name in names}


def gravity(violation: Violation) -> int:
    """Rank of its kind, 0 for the gravest and for what has none yet."""
    return _RANKS.get(violation.invariant, 0)


def gravest_first(violations: Iterable[Violation]) -> list[Violation]:
    """By kind; within a kind in the order given, which is that of the run."""
    return sorted(violations, key=gravity)
