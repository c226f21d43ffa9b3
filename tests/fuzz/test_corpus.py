"""The corpus, every target's seeds and a few thousand random changes of them: no coverage guidance, a few
seconds.

What a long run of `python -m tests.fuzz` finds is kept in the corpus and so tried again here.
"""

from __future__ import annotations

import time

import pytest

from tests.fuzz.corpus import CORPUS, MAX_FILES_PER_TARGET, stored
from tests.fuzz.run import failure, mutate
from tests.fuzz.shrink import shrunk
from tests.fuzz.target import NAMES, MemoryBoundError, Target, check_with_memory, load

MUTATIONS = 3000
# Slow targets (whole directories, YAML, keys) get less: their time is bounded, not their number.
SECONDS = 1.5
MAX_CORPUS_BYTES = 300_000


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_is_handled(name: str) -> None:
    assert stored(name), f"{name} has no corpus: python -m tests.fuzz --write-seeds --only {name}"
    for data in sorted({*stored(name), *load(name).seeds(), b""}):
        problem = failure(name, data)
        assert not problem, f"input {data.hex()}\n{problem}"


@pytest.mark.parametrize("name", NAMES)
def test_random_changes_are_handled(name: str) -> None:
    data = mutate(name, MUTATIONS, 1, time.monotonic() + SECONDS)
    assert data is None, f"input {shrunk(load(name), data).hex()}\n{failure(name, data)}"


def test_the_corpus_is_small_and_belongs_to_a_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(NAMES)
    assert all(len(stored(name)) <= MAX_FILES_PER_TARGET for name in NAMES)
    assert sum(len(data) for name in NAMES for data in stored(name)) < MAX_CORPUS_BYTES


def _fails_with_an_x(data: bytes) -> None:
    if b"x" in data:
        raise ValueError("found")


def test_a_failing_input_is_made_small() -> None:
    target = Target(_fails_with_an_x, lambda: [b"x"])
    assert shrunk(target, b"abc" * 20 + b"x" + b"def" * 20) == b"x"
    assert shrunk(target, b"abc") == b"abc"


def test_memory_beyond_the_bound_is_a_failure() -> None:
    target = Target(lambda data: bytearray(int.from_bytes(data, "big")).clear(), lambda: [b"\1"], 1000, 1)
    check_with_memory(target, b"\1")
    with pytest.raises(MemoryBoundError, match="4 bytes of input"):
        check_with_memory(target, b"\1\0\0\0")
