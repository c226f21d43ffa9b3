"""Every interleaving of several attempts at a task, with faults: each row is in the log once, and stays
so."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import pytest

from spark_tests.sink.model import USER_LOCK, Job, Logged, World, identity, successors
from waltz_protocol.locks import LockId
from waltz_spark.sink.attempt import OnConflict, OutgoingRow
from waltz_spark.sink.errors import BadRowError
from waltz_spark.sink.task_claims import CLAIM_HEADER

PLAIN = OutgoingRow(b"one")
TWIN = OutgoingRow(b"twin")
LOCKED = OutgoingRow(b"locked", 3, write_locks=(USER_LOCK,), as_of=0)
BEFORE = (Logged(999, 0, b"before"),)
"""What is in the log when the batch starts."""
MAX_STATES = 400_000


def explore(world: World, job: Job) -> Counter[str]:
    """All worlds that can come of one; how the attempts ended in the last ones."""
    expected = Counter(row.data for chunk in job.chunks for row in chunk)
    ends: Counter[str] = Counter()
    seen = {identity(world)}
    queue = deque([world])
    while queue:
        world = queue.popleft()
        check(world, expected, job)
        last = True
        for after in successors(world, job):
            last = False
            name = identity(after)
            if name not in seen:
                assert len(seen) < MAX_STATES
                seen.add(name)
                queue.append(after)
        if last:
            ends.update(str(process.ended) for process in world.processes)
            assert all(process.ended for process in world.processes), world.story
    ends["worlds"] = len(seen)
    return ends


def check(world: World, expected: Counter[bytes], job: Job) -> None:
    """The promise, at any moment."""
    rows = Counter(
        entry.data for entry in world.log if entry.header != CLAIM_HEADER and entry.client_id != 999
    )
    assert rows <= expected, f"a row is there twice: {world.story}"
    done = [process for process in world.processes if process.ended == "done"]
    skipped = max((process.state.skipped for process in done), default=0)
    if done:
        assert rows.total() + skipped >= expected.total(), f"done, but a row is missing: {world.story}"


SCENARIOS = {
    "rows without locks, an answer that does not come": (
        World(log=BEFORE, timeouts=1),
        Job(((PLAIN, TWIN), (TWIN,)), start=0),
    ),
    "three attempts, one dies": (World(log=BEFORE, starts=3, crashes=1), Job(((PLAIN,),), start=0)),
    "two answers that do not come": (World(log=BEFORE, timeouts=2), Job(((PLAIN,),), start=0)),
    "the partition moves, a request is lost": (
        World(log=BEFORE, resets=1, drops=1),
        Job(((PLAIN, TWIN),), start=0),
    ),
    "user locks, an answer that does not come": (
        World(log=BEFORE, timeouts=1, touches=0),
        Job(((PLAIN, LOCKED),), start=0),
    ),
    "user locks, left out after a conflict": (
        World(log=BEFORE, timeouts=1, touches=1),
        Job(((LOCKED,),), start=0, on_conflict=OnConflict.SKIP),
    ),
    "user locks, written again after a conflict": (
        World(log=BEFORE, timeouts=1, touches=1),
        Job(((LOCKED,),), start=0, on_conflict=OnConflict.RETRY),
    ),
    "user locks, written again, the partition moves": (
        World(log=BEFORE, resets=1, touches=1),
        Job(((LOCKED,),), start=0, on_conflict=OnConflict.RETRY),
    ),
    "user locks, written again, while the answer to a row without locks does not come": (
        World(log=BEFORE, starts=1, timeouts=1, touches=1),
        Job(((LOCKED, PLAIN),), start=0, on_conflict=OnConflict.RETRY),
    ),
    "user locks, the first conflict ends it": (
        World(log=BEFORE, crashes=1, touches=1),
        Job(((LOCKED,),), start=0, on_conflict=OnConflict.FAIL),
    ),
}


MANY_STATES = {
    "user locks, written again after a conflict",
    "user locks, written again, the partition moves",
    "three attempts, one dies",
    "two answers that do not come",
    "user locks, left out after a conflict",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in MANY_STATES)) for name in SCENARIOS]
)
def test_every_row_is_there_once(name: str) -> None:
    world, job = SCENARIOS[name]
    ends = explore(world, job)
    print(name, dict(ends))
    assert ends["done"] > 0


FREE = OutgoingRow(b"locked", 3)
READING = OutgoingRow(b"locked", 3, read_locks=(LockId("account", 2),), as_of=0)
MISTAKABLE = {
    "both with locks, one is touched": (LOCKED, READING),
    "both with the same lock": (READING, READING),
    "the first without locks": (FREE, READING),
    "the second without locks": (READING, FREE),
}


@pytest.mark.parametrize("policy", OnConflict)
@pytest.mark.parametrize("name", MISTAKABLE)
@pytest.mark.parametrize("apart", [False, True])
def test_rows_that_the_log_cannot_distinguish_are_refused(name: str, policy: OnConflict, apart: bool) -> None:
    """A copy that is found could be of either row, and only one of the two is checked as of that copy."""
    first, second = MISTAKABLE[name]
    chunks = ((first,), (second,)) if apart else ((first, second),)
    with pytest.raises(BadRowError, match=r"partition 0: .* of equal content") as error:
        explore(World(log=BEFORE, drops=1, touches=1), Job(chunks, start=0, on_conflict=policy))
    assert "\n" not in str(error.value)
    assert "put an id" in str(error.value)


def test_rows_that_differ_in_their_header_are_distinguished() -> None:
    other = replace(LOCKED, header=4, write_locks=(), read_locks=(LockId("account", 2),))
    assert explore(World(log=BEFORE, starts=1), Job(((LOCKED, other),), start=0))["done"] > 0
