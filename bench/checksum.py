"""The checksum of the installed package against zlib's, alternating: one call over data of some size."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

from bench.figures import Figure, Target, Wanted
from waltz_protocol.checksum import crc32

_SIZES = (128, 552, 4096, 65_536)
"""Bytes; 552 are a stored record with 512 bytes of data."""
_ROUNDS = 200
_BYTES_PER_ROUND = 512 * 1024
RATIO_TARGET = Target(Wanted.AT_MOST, 0.5)


def measure_checksum() -> list[Figure]:
    """Time by `waltz_protocol.checksum` ÷ time by zlib, the smallest of many rounds of each."""
    figures = []
    for size in _SIZES:
        ours = theirs = float("inf")
        for _ in range(_ROUNDS):
            ours = min(ours, _microseconds(crc32, size))
            theirs = min(theirs, _microseconds(zlib.crc32, size))
        figures.append(
            Figure(
                "checksums",
                f"{size:,} bytes, ours / zlib",
                ours / theirs,
                "",
                RATIO_TARGET,
                "one thread",
                f"{ours:.3f} us, zlib {theirs:.3f} us",
            )
        )
    return figures


def _microseconds(checksum: Callable[[bytes], int], size: int) -> float:
    data, calls = bytes(size), max(1, _BYTES_PER_ROUND // size)
    started = time.perf_counter()
    for _ in range(calls):
        checksum(data)
    return (time.perf_counter() - started) / calls * 1e6
