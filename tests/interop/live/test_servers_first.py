"""Why servers are exchanged first: one disk is lost, and a server of 0.13.2 loses what the other replicas
still hold.

s1 and s2 acknowledge fifty transactions while s3 lags within the same session. Then the server dies, s2 comes
back on an empty disk, s3 as it is, and s1 a moment after them. One disk of three was lost: nothing may be. A
server of ours counts the emptied s2 as absent (A1) and waits for s1. A server of 0.13.2 fills s2 from s3,
lets it vote, and cuts s1.
"""

import signal
import time
from pathlib import Path

import pytest

from tests.interop.live.loops import run
from tests.interop.live.mix import NODES, OURS, RELEASE, Mix, open_mix
from tests.interop.live.release import Release
from tests.interop.live.segments import read_partition
from waltz_client import WaltzClient

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BEFORE, LATER = 20, 50
_SECONDS = 60.0


async def append(mix: Mix, first: int, count: int) -> dict[int, bytes]:
    """What was acknowledged, by its id in partition 0."""
    acknowledged: dict[int, bytes] = {}
    async with WaltzClient.connect(mix.config("tools")) as client:
        for number in range(first, first + count):
            data = f"record {number}".encode()
            done = await client.append(partition=0, data=data, deadline_seconds=_SECONDS)
            acknowledged[done.transaction_id] = data
    return acknowledged


def records(mix: Mix, name: str) -> dict[int, bytes]:
    return {entry.transaction_id: entry.data for entry in read_partition(mix.data(name) / "0")}


def until_records(mix: Mix, name: str, count: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while len(records(mix, name)) < count:
        assert time.monotonic() < deadline, f"{name} holds {len(records(mix, name))} of {count} records"
        time.sleep(0.1)  # a poll of files


def until_undecidable(mix: Mix) -> None:
    """Until the server of ours says that it can't know what was acknowledged."""
    deadline = time.monotonic() + _SECONDS
    while "undecidable" not in (health := mix.health("h1")):
        assert time.monotonic() < deadline, health
        time.sleep(0.1)  # a poll over HTTP


async def end_of_log(mix: Mix) -> int:
    """The high-water mark of partition 0, when it is served."""
    async with WaltzClient.connect(mix.config("tools")) as client:
        return await client.high_water_mark(0, deadline_seconds=_SECONDS)


def lose_one_disk(mix: Mix, server: str, nodes: str) -> dict[int, bytes]:
    """What was acknowledged before; when this returns the server has been started again, without s1."""
    mix.up(dict.fromkeys(NODES, nodes), {"h1": server})
    mix.complete()
    acknowledged = run(append(mix, 0, BEFORE))
    for name in NODES:
        until_records(mix, name, BEFORE)
    mix.pause("s3")
    acknowledged |= run(append(mix, BEFORE, LATER))
    mix.stop("h1", signal.SIGKILL)
    for name in NODES:
        mix.stop(name, signal.SIGKILL)
    assert [len(records(mix, name)) for name in NODES] == [BEFORE + LATER, BEFORE + LATER, BEFORE]
    mix.lose_disk("s2")
    mix.start_together({"s2": nodes, "s3": nodes})
    mix.waltz("storage", "sync-partitions", codes=(0, 3))  # s1 does not answer yet
    mix.start("h1", server)
    return acknowledged


def end(mix: Mix, nodes: str) -> None:
    """s1 is there again, and every replica takes part."""
    mix.start("s1", nodes)
    mix.complete()


@pytest.mark.parametrize("nodes", [OURS, RELEASE])
def test_safety_a1_a_server_of_ours_loses_nothing_with_one_disk(
    nodes: str, release: Release, tmp_path: Path
) -> None:
    with open_mix(tmp_path, release) as mix:
        acknowledged = lose_one_disk(mix, OURS, nodes)
        until_undecidable(mix)
        end(mix, nodes)
        for name in NODES:
            until_records(mix, name, BEFORE + LATER)
            assert records(mix, name) == acknowledged


@pytest.mark.parametrize("nodes", [OURS, RELEASE])
def test_a_server_of_0_13_2_loses_with_one_disk_what_was_acknowledged(
    nodes: str, release: Release, tmp_path: Path
) -> None:
    """No promise of ours holds while it owns partitions, on nodes of ours either. If this fails, the
    documents may say less."""
    with open_mix(tmp_path, release) as mix:
        acknowledged = lose_one_disk(mix, RELEASE, nodes)
        assert run(end_of_log(mix)) == BEFORE - 1
        end(mix, nodes)
        for name in NODES:
            assert records(mix, name) == {number: acknowledged[number] for number in range(BEFORE)}, name
