"""Times as Kubernetes writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(at: float) -> str:
    """RFC 3339, whole seconds, of UNIX time."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str | None) -> float:
    """UNIX time of a timestamp; 0 for none, or one that cannot be read."""
    if not text:
        return 0.0
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
