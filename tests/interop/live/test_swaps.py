"""Processes die and come back as the other implementation, on the same directories and ports, while two
clients write.

The first ten swaps are fixed: each role goes both ways, with SIGKILL and in order, through clusters that are
mixed in every way, up to servers of 0.13.2 on nodes of ours only. `WALTZ_LIVE_SWAPS` asks for more, drawn
from `WALTZ_LIVE_SEED`. All of it is done without the node journal and with it; with it 0.13.2 refuses the
directory of a node of ours that was killed, until the directory is settled, which is done without it too.
"""

import itertools
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.live.judge import settle, violations
from tests.interop.live.loads import PROGRESS, Loads, loads, until_progress
from tests.interop.live.mix import NODES, OURS, RELEASE, SERVERS, Mix, open_mix
from tests.interop.live.release import Release

SWAPS = int(os.environ.get("WALTZ_LIVE_SWAPS", "10"))
SEED = int(os.environ.get("WALTZ_LIVE_SEED", "0"))
pytestmark = [pytest.mark.long, pytest.mark.timeout(300 + 120 * SWAPS)]

KILL, TERM = signal.SIGKILL, signal.SIGTERM
CLIENT = "client"
FIXED = (
    ("h2", KILL),
    ("s1", KILL),
    ("s3", KILL),
    ("h1", KILL),
    (CLIENT, KILL),
    ("h2", TERM),
    ("s3", TERM),
    ("s2", KILL),
    ("h1", TERM),
    ("s1", TERM),
)


def plan() -> Iterator[tuple[str, signal.Signals]]:
    """Who is next and how it ends."""
    drawn = random.Random(SEED)
    names = (*NODES, *SERVERS, CLIENT)
    more = ((drawn.choice(names), drawn.choice((KILL, TERM))) for _ in itertools.count())
    return itertools.islice(itertools.chain(FIXED, more), SWAPS)


def other(implementation: str) -> str:
    return OURS if implementation == RELEASE else RELEASE


def test_the_fixed_swaps_go_both_ways() -> None:
    """Needs no release: with these, every role is met in both implementations, ended in both ways."""
    ends = {(name[0], how) for name, how in FIXED if name != CLIENT}
    assert ends == {(role, how) for role in "sh" for how in (KILL, TERM)}


@pytest.mark.parametrize("journal", [False, True], ids=["files", "journal"])
def test_swaps_under_load_lose_nothing(
    release: Release, tmp_path: Path, record_property: Callable[[str, object], None], journal: bool
) -> None:
    with open_mix(tmp_path, release, journal=journal) as mix:
        mix.up({"s1": RELEASE, "s2": RELEASE, "s3": OURS}, {"h1": RELEASE, "h2": OURS}, by=RELEASE)
        mix.complete()
        with loads(mix) as both:
            until_progress(both)
            for name, how in plan():
                swap(mix, both, name, how)
                until_progress(both)
        mix.complete()
        if journal:
            mix.level()
            for name in NODES:
                mix.stop(name)
        logs = settle(mix.read)
        assert violations(logs, both.known, false_failures=True) == []
        assert len(both.known.acknowledged) > 2 * PROGRESS * SWAPS
        assert mix.complaints() == []
        record_property("live: acknowledged", len(both.known.acknowledged))


def swap(mix: Mix, both: Loads, name: str, how: signal.Signals) -> None:
    """Exchange one process; the others work on meanwhile."""
    if name == CLIENT:
        both.kill_theirs()
        return
    next_one = other(mix.runs[name])
    mix.stop(name, how)
    until_progress(both)
    if name in NODES and how == KILL and next_one == RELEASE:
        if mix.journal:
            assert "cluster key does not match" in mix.refused_by(name, RELEASE)
        mix.waltz("disk", "settle", str(mix.data(name)))
    mix.start(name, next_one)
    mix.complete()
