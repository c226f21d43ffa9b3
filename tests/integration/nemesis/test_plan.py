"""The plan: the same seed gives the same faults, every kind occurs, nothing is done twice to one process at a
time."""

import dataclasses

import pytest

from tests.integration.nemesis.plan import ZOOKEEPER, Fault, Kind, Topology, plan_round

TOPOLOGY = Topology(
    storage=("storage-1", "storage-2", "storage-3"),
    servers=("server-1", "server-2"),
    clients=("bank-1", "feed-1"),
    small_disk="storage-2",
    failing_syncs="storage-3",
)
SEEDS = range(100)
SECONDS = 45.0
NEEDS_PROCESS = {Kind.KILL, Kind.PAUSE, Kind.TERMINATE, Kind.SYNC_FAILS, Kind.ROLLING, Kind.KILL_ALL}


def touched(fault: Fault) -> set[str]:
    roles = {*TOPOLOGY.storage, *TOPOLOGY.servers, *TOPOLOGY.clients, ZOOKEEPER}
    if fault.target.endswith("*"):
        return {role for role in roles if role.startswith(fault.target[:-1])}
    return {fault.target}


def test_a_seed_and_a_round_decide_all_faults() -> None:
    assert plan_round(7, 1, SECONDS, TOPOLOGY) == plan_round(7, 1, SECONDS, TOPOLOGY)
    assert plan_round(7, 1, SECONDS, TOPOLOGY) != plan_round(7, 2, SECONDS, TOPOLOGY)
    assert plan_round(7, 1, SECONDS, TOPOLOGY) != plan_round(8, 1, SECONDS, TOPOLOGY)


def test_a_long_round_has_every_kind() -> None:
    for seed in SEEDS:
        assert {fault.kind for fault in plan_round(seed, 1, SECONDS, TOPOLOGY)} == set(Kind)


def test_faults_overlap_but_not_on_one_process() -> None:
    overlapping = 0
    for seed in SEEDS:
        faults = plan_round(seed, 1, SECONDS, TOPOLOGY)
        assert faults == sorted(faults, key=lambda fault: fault.at)
        for index, first in enumerate(faults):
            for second in faults[index + 1 :]:
                if second.at < first.at + first.seconds:
                    overlapping += 1
                    if first.kind in NEEDS_PROCESS and second.kind in NEEDS_PROCESS:
                        assert not touched(first) & touched(second), (seed, str(first), str(second))
    assert overlapping > 10 * len(SEEDS)


@pytest.mark.parametrize(
    ("without", "kind"), [("small_disk", Kind.DISK_FULL), ("failing_syncs", Kind.SYNC_FAILS)]
)
def test_what_this_machine_cannot_do_is_left_out(without: str, kind: Kind) -> None:
    topology = dataclasses.replace(TOPOLOGY, **{without: None})  # type: ignore[arg-type]
    kinds = {fault.kind for seed in SEEDS for fault in plan_round(seed, 1, SECONDS, topology)}
    assert kinds == set(Kind) - {kind}
