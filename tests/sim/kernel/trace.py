"""What happened, as lines and as one hash: two runs of a seed are the same if their hashes are."""

from __future__ import annotations

import hashlib
from typing import TextIO


class Trace:
    """Lines go into the hash, and to a file if one is wanted; the newest are kept for reports of failures."""

    def __init__(self, sink: TextIO | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self.lines = 0

    def add(self, seconds: float, process: str, what: str) -> None:
        """One event at virtual time `seconds` in `process`."""
        line = f"{seconds:.6f} {process} {what}\n"
        self._hash.update(line.encode())
        self.lines += 1
        if self._sink is not None:
            self._sink.write(line)

    def digest(self) -> str:
        """Hash of all lines so far."""
        return self._hash.hexdigest()
