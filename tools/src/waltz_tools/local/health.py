"""Reads the health pages of local storage nodes and servers."""

from __future__ import annotations

from collections.abc import Iterable

from waltz_tools.local.http import get, get_json


async def is_up(http_port: int) -> bool:
    """True when the process answers over HTTP (healthy or not)."""
    status, _ = await get(http_port, "/ping")
    return status == 200


async def served_partitions(http_ports: Iterable[int]) -> set[int]:
    """Partitions that one of these servers reports as healthy."""
    served: set[int] = set()
    for port in http_ports:
        _, answer = await get_json(port, "/health")
        check = answer.get("server-health-check")
        partitions = check.get("partitions") if isinstance(check, dict) else None
        if isinstance(partitions, dict):
            served.update(int(partition) for partition, healthy in partitions.items() if healthy is True)
    return served
