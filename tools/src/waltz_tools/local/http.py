"""A few lines of HTTP GET against the health ports of local processes (no client library needed for one
request)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from waltz_runtime.ports import LOOPBACK


async def get(
    port: int, path: str, *, host: str = LOOPBACK, accept: str = "*/*", timeout_seconds: float = 3.0
) -> tuple[int, bytes]:
    """(status, body) of one GET; (0, b"") when nobody answers in time."""
    request = f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request.encode())
                answer = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    return (int(status[0]) if status and status[0].isdigit() else 0), body


async def get_json(
    port: int, path: str, *, host: str = LOOPBACK, timeout_seconds: float = 3.0
) -> tuple[int, dict[str, Any]]:
    """(status, object) of one GET that answers JSON; an empty object when it does not."""
    status, body = await get(
        port, path, host=host, accept="application/json", timeout_seconds=timeout_seconds
    )
    try:
        value = json.loads(body) if body else {}
    except ValueError:
        value = {}
    return status, value if isinstance(value, dict) else {}
