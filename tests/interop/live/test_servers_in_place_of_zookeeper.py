"""A client of ours that is given servers in place of ZooKeeper, where one of the two servers is of 0.13.2: it
needs one of ours, whichever that is, and appends to the partitions of both, next to a client of 0.13.2."""

import signal
from pathlib import Path

import pytest

from tests.interop.live.judge import settle, violations
from tests.interop.live.loads import loads, until_progress
from tests.interop.live.loops import run
from tests.interop.live.mix import NODES, OURS, RELEASE, Mix, open_mix
from tests.interop.live.release import Release
from waltz_client import Committed, SequenceUnsupportedError, WaltzClient
from waltz_client.errors import ConnectError

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KILL, TERM = signal.SIGKILL, signal.SIGTERM
STEPS = (
    ("h2", OURS, KILL),
    ("s2", OURS, KILL),
    ("h1", RELEASE, TERM),
    ("s1", RELEASE, TERM),
    ("h1", OURS, KILL),
    ("h2", RELEASE, TERM),
)
"""One of the two servers is of ours all the time, and serves while the other one is exchanged."""


def test_a_client_of_servers_works_as_long_as_one_of_them_is_ours(release: Release, tmp_path: Path) -> None:
    with open_mix(tmp_path, release) as mix:
        mix.up({"s1": OURS, "s2": RELEASE, "s3": OURS}, {"h1": OURS, "h2": RELEASE})
        mix.complete()
        with loads(mix, "application") as both:
            until_progress(both)
            for name, implementation, how in STEPS:
                mix.stop(name, how)
                until_progress(both)
                mix.start(name, implementation)
                mix.complete()
                until_progress(both)
        mix.complete()
        assert violations(settle(mix.read), both.known, false_failures=True) == []
        assert mix.complaints() == []
        run(append_under_a_name(mix))


async def append_under_a_name(mix: Mix) -> None:
    """A named producer appends where a server of ours owns the partition, and is refused elsewhere."""
    outcomes = set()
    async with WaltzClient.connect(mix.config("application"), producer="orders") as client:
        for partition in range(client.num_partitions):
            number = await client.last_sequence(partition, deadline_seconds=60) + 1
            try:
                done = await client.append(partition=partition, data=b"event", sequence=number)
            except SequenceUnsupportedError:
                outcomes.add(RELEASE)
            else:
                assert await client.append(partition=partition, data=b"event", sequence=number) == Committed(
                    partition, done.transaction_id
                )
                outcomes.add(OURS)
    assert outcomes == {OURS, RELEASE}


def test_servers_of_0_13_2_alone_are_named_in_the_error(release: Release, tmp_path: Path) -> None:
    with open_mix(tmp_path, release) as mix:
        mix.up(dict.fromkeys(NODES, OURS), {"h1": RELEASE, "h2": RELEASE})
        with pytest.raises(ConnectError, match=r"speaks version 4 .* a server of release 0\.13\.2 has none"):
            run(append_under_a_name(mix))
