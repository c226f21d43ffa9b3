"""Can a partition take a write? One definition, for servers, tools and the operator. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def quorum_of(replica_count: int) -> int:
    """The smallest majority."""
    return replica_count // 2 + 1


def shortage(replicas: Mapping[str, str]) -> str:
    """Why a partition cannot take a write: fewer than a majority of its replicas can. Empty when a majority
    can.

    `replicas`: every assigned storage node, and why it cannot take a write (empty when it can, as far as is
    known).
    """
    if not replicas:
        return "no replica is assigned"
    missing = [f"{node} ({why})" for node, why in sorted(replicas.items()) if why]
    able, needed = len(replicas) - len(missing), quorum_of(len(replicas))
    if able >= needed:
        return ""
    return f"{able} of {len(replicas)} replicas, {needed} needed: {', '.join(missing)}"


def alike(reasons: Mapping[int, str]) -> dict[str, str]:
    """Partitions with the same reason together: `{"0-2,5": reason}`, in the order of their first ids."""
    by_reason: dict[str, list[int]] = {}
    for partition, reason in sorted(reasons.items()):
        by_reason.setdefault(reason, []).append(partition)
    return {id_ranges(partitions): reason for reason, partitions in by_reason.items()}


def said_once(reasons: Mapping[int, str], partitions: int) -> list[str]:
    """A line for each reason why partitions cannot take a write. `partitions`: how many there are, well
    ones included."""
    lines = []
    for ids, reason in alike(reasons).items():
        if len(reasons) == partitions and ids == id_ranges(reasons):
            lines.append(f"no partition can take a write: {reason}")
        else:
            noun = "partition" if ids.isdigit() else "partitions"
            lines.append(f"{noun} {ids} cannot take a write: {reason}")
    return lines


def id_ranges(ids: Iterable[int]) -> str:
    """`0-2,5` of 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for one in sorted(ids):
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
