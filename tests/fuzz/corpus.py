"""The corpus in the repository: a few small inputs per target, and every input that once found something.

`tests/fuzz/corpus/<target>/`: names are the beginning of the content's SHA-256, or `found-<what>`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.fuzz.target import load

CORPUS = Path(__file__).parent / "corpus"
MAX_FILES_PER_TARGET = 64


def stored(target: str) -> list[bytes]:
    """The inputs of a target, by name."""
    folder = CORPUS / target
    return [file.read_bytes() for file in sorted(folder.iterdir())] if folder.is_dir() else []


def file_name(data: bytes) -> str:
    """Where an input goes."""
    return hashlib.sha256(data).hexdigest()[:16]


def write_seeds(target: str) -> int:
    """Write the target's seeds that are not there yet; how many there are now."""
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    have = {file.name for file in folder.iterdir()}
    for data in sorted({*load(target).seeds()}, key=lambda seed: (len(seed), seed)):
        if len(have) < MAX_FILES_PER_TARGET and len(data) <= 4096:
            (folder / file_name(data)).write_bytes(data)
            have.add(file_name(data))
    return len(have)
