"""Texts of conditions, which the API server takes up to a length only. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from waltz_operator.api.cluster_status import MAX_MESSAGE

MAX_TEXTS = 10
"""So many are given in full."""


def first_texts(texts: Sequence[str]) -> str:
    """The first of them, and the number of the others."""
    more = f"; and {len(texts) - MAX_TEXTS} more" if len(texts) > MAX_TEXTS else ""
    return "; ".join(texts[:MAX_TEXTS]) + more


def fitting(text: str) -> str:
    """As much of it as a condition takes."""
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"
