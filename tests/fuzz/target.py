"""What a fuzz target is, and the list of all of them.

A target is a module below `tests.fuzz.targets` with a `TARGET`. Modules are imported late: the run with
coverage has to instrument the product's modules while they are imported.
"""

from __future__ import annotations

import importlib
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Every target, in the order in which a run without `--only` takes them.
NAMES = (
    "hello",
    "blocks",
    "block_columns",
    "compressed_blocks",
    "client_messages",
    "cluster_directory",
    "producer_messages",
    "storage_messages",
    "stored_records",
    "admin_messages",
    "append_frame",
    "append_batch",
    "feed_frame",
    "storage_frame",
    "frame_splitter",
    "zookeeper",
    "configuration",
    "tls_store",
    "segment_scan",
    "control_file",
    "sidecar",
    "journal",
    "directory",
)


@dataclass(frozen=True)
class Target:
    """`check` takes any bytes and raises whatever for a violated property; nothing else may come out of it.

    `seeds` makes the inputs to start from. `memory_bytes` and `memory_factor` bound what one input may
    cost: a constant and a multiple of its length.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    memory_bytes: int = 1 << 20
    memory_factor: int = 256
    max_input_bytes: int = 4096


class MemoryBoundError(AssertionError):
    """An input cost more memory than its length allows."""


def load(name: str) -> Target:
    """The target of that name."""
    target: Target = importlib.import_module(f"tests.fuzz.targets.{name}").TARGET
    return target


def check_with_memory(target: Target, data: bytes) -> None:
    """`check`, and `MemoryBoundError` when its peak is beyond the target's bound."""
    tracemalloc.start()
    try:
        target.check(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    bound = target.memory_bytes + target.memory_factor * len(data)
    if peak > bound:
        raise MemoryBoundError(f"{len(data)} bytes of input took {peak} bytes, {bound} are allowed")
