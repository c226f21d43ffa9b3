"""Payloads as applications have them: JSON documents of one kind, each with values of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import cycle

COUNT = 4096
"""Different ones; as many are several blocks, so no block has one twice."""
_NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
_CURRENCIES = ("EUR", "USD", "GBP", "CHF")
_REASONS = ("rent", "food", "gift", "salary", "tax", "loan")


def documents(size_bytes: int) -> Iterator[bytes]:
    """Without end, each cut or filled up with more of its kind to this size."""
    rng = random.Random(1)
    return cycle([_document(rng, size_bytes) for _ in range(COUNT)])


def _document(rng: random.Random, size_bytes: int) -> bytes:
    found = b""
    while len(found) < size_bytes:
        found += json.dumps(_transfer(rng)).encode()
    return found[:size_bytes]


def _transfer(rng: random.Random) -> dict[str, object]:
    return {
        "type": "transfer",
        "id": f"{rng.getrandbits(64):016x}",
        "from": {"account": rng.randrange(10**6), "owner": rng.choice(_NAMES)},
        "to": {"account": rng.randrange(10**6), "owner": rng.choice(_NAMES)},
        "amount": rng.randrange(10**6) / 100,
        "currency": rng.choice(_CURRENCIES),
        "at": f"2026-11-{rng.randrange(1, 29):02d}T{rng.randrange(24):02d}:{rng.randrange(60):02d}:07.{rng.randrange(1000):03d}Z",
        "reference": f"invoice {rng.randrange(10**8)}",
        "reasons": rng.sample(_REASONS, 2),
    }
