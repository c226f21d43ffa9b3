"""The rules about the disk of a storage node. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from waltz_admin.cluster_status import StorageStatus
from waltz_admin.findings.finding import Finding, Rule, Severity

FEW_DAYS = 14
"""A disk that is full sooner is a finding: enough time to get another one."""

DISK_FULL = Rule(
    "disk-full",
    Severity.REDUCED,
    "A storage node refuses appends for lack of space.",
    alerts=("WaltzDiskFull",),
)
DISK_FILLS = Rule(
    "disk-fills",
    Severity.SOON,
    f"A disk is full within {FEW_DAYS} days at the present growth.",
    alerts=("WaltzDiskFullSoon",),
)


def disk(node: StorageStatus) -> Iterable[Finding]:
    """What is wrong with the disk of one node."""
    figures = node.disk
    if figures is None:
        return
    evidence = tuple(
        f"{name}: {value:,} bytes"
        for name, value in (
            ("size of the file system", figures.size_bytes),
            ("free", figures.free_bytes),
            ("reserve, which appends do not touch", figures.reserve_bytes),
            ("log", figures.log_bytes),
        )
        if value is not None
    )
    days = figures.days_to_full
    if figures.full:
        yield Finding(
            DISK_FULL,
            f"storage node {node.node}: its disk is full, its replicas take no appends",
            "enlarge the file system or delete what is not Waltz's: the node accepts appends again within seconds; "
            "or move partitions to a new node (`waltz storage replace`)",
            evidence,
            node.partitions,
            (node.node,),
        )
    elif days is not None and days < FEW_DAYS:
        yield Finding(
            DISK_FILLS,
            f"storage node {node.node}: its disk is full in {days:.1f} days if the log keeps growing at this rate",
            "add disk space now: the log is kept forever (`waltz storage usage` has the figures)",
            evidence,
            node.partitions,
            (node.node,),
        )
