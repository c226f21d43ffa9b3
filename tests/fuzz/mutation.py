"""Small random changes of an input, for runs without coverage guidance."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_INTERESTING = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


def mutated(data: bytes, others: Sequence[bytes], rng: random.Random, max_bytes: int) -> bytes:
    """`data` after one to four changes; `others` lend pieces."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        rng.choice(_CHANGES)(raw, others, rng)
    return bytes(raw[:max_bytes])


def _set_byte(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    if raw:
        raw[rng.randrange(len(raw))] = rng.randrange(256)


def _flip_bit(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    if raw:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def _insert(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(raw) + 1)
    raw[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 30)))


def _remove(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(raw) + 1)
    del raw[at : at + rng.choice((1, 2, 4, 8, 30))]


def _cut(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    del raw[rng.randrange(len(raw) + 1) :]


def _number(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(_INTERESTING) & ((1 << 8 * size) - 1)
    at = rng.randrange(len(raw) + 1)
    raw[at : at + size] = value.to_bytes(size, "big")


def _borrow(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    other = rng.choice(others)
    start = rng.randrange(len(other) + 1)
    piece = other[start : start + rng.choice((2, 8, 40, 500))]
    at = rng.randrange(len(raw) + 1)
    raw[at : at + rng.choice((0, len(piece)))] = piece


def _repeat(raw: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(raw) + 1)
    piece = raw[at : at + rng.choice((1, 4, 16))]
    raw[at:at] = piece * rng.choice((1, 3, 50))


_CHANGES: tuple[Callable[[bytearray, Sequence[bytes], random.Random], None], ...] = (
    _set_byte,
    _flip_bit,
    _insert,
    _remove,
    _cut,
    _number,
    _number,
    _borrow,
    _repeat,
)
