"""One replica is damaged, or gone."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.checkers.history import Outcome
from tests.sim.kernel.rot import Rot, flip
from tests.sim.scenarios.stage import Machine, Stage, play, seeds

MOMENTS = ("running", "restart", "power", "owner")


@pytest.mark.parametrize("kind", list(Rot), ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seed", seeds(1))
def test_scenario_nats_2_12_1_one_flipped_bit_on_one_replica(seed: int, moment: str, kind: Rot) -> None:
    """NATS 2.12.1: one flipped bit on one of five nodes took 679,153 of 1,367,069 messages; damaged metadata
    made a node delete the whole stream, and the replicas never agreed again.

    Here a bit of every kind is flipped on one of three replicas, noticed while running, at a restart of the
    node, after a power cut of all nodes, or in the recovery of a new owner. Nothing is lost, nobody is shown
    anything else, the two others continue without it, and a copy that the node refuses is rebuilt from
    theirs.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(40)) == 40
        await stage.whole()
        name = stage.rng.choice(sorted(stage.storage))
        role = stage.storage[name]
        said = flip(role.disk, kind, 0, stage.rng)
        assert said is not None
        stage.loop.note(said)
        stage.state.rotten[name, 0] = None
        choices: dict[str, list[Machine]] = {
            "running": [],
            "restart": [role],
            "power": [*stage.storage.values()],
            "owner": [stage.owner()],
        }
        machines = choices[moment]
        stage.dark(machines)
        await asyncio.sleep(1.0)
        stage.light(machines)
        assert len(await stage.write(20)) == 20
        assert len(await stage.read_all()) >= 60
        if not role.alive or kind in (Rot.CONTROL_HEADER, Rot.CONTROL_ENTRY):
            # the whole node counts on its control file: it says that it cannot read it and does not start, or
            # the inspecting tool finds what the node does not look at; the remedy is a new disk
            await stage.until(lambda: stage.state.can_lose(name), 60.0, "the others have everything")
            role.hold()
            role.kill()
            role.disk.wipe()
            role.memory.forget()
            stage.state.rotten.clear()
            role.release()
            await stage.repairs.refill(name)

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(2))
def test_scenario_damage_of_every_replica_at_different_places(seed: int) -> None:
    """TigerBeetle 0.16.11 came through damage on every replica, as long as each piece had one good copy left.

    Here each of three replicas has one damaged record of its own, found by readers while running: every
    transaction is still read as it was written, from a replica that has it.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(30)) == 30
        await stage.whole()
        for name, role in stage.storage.items():
            said = flip(role.disk, stage.rng.choice((Rot.RECORD_DATA, Rot.RECORD_HEADER)), 0, stage.rng)
            stage.loop.note(f"{name} {said}")
            stage.state.rotten[name, 0] = None
        stage.owner().kill()  # the new owner has nothing in its caches
        found = await stage.read_all()
        assert found == [
            op.data for op in sorted(stage.history.appends, key=lambda op: op.transaction_id or 0)
        ]
        assert len(await stage.write(10)) == 10
        # the good copies are spread over all three, so no copy may be thrown away: their disks are mended
        # byte by byte
        for name, role in stage.storage.items():
            stage.loop.note(f"mend {name}")
            _mend(stage, name)
            role.kill()
        stage.state.rotten.clear()

    play(seed, script)


def _mend(stage: Stage, name: str) -> None:
    """What an administrator with a good copy of each record would do; no part of the promise."""
    damaged = stage.storage[name].disk
    others = [role.disk for other, role in stage.storage.items() if other != name]
    for path, data in damaged.files().items():
        if not path.endswith(".seg"):
            continue
        copies = [disk.content(path) for disk in others if disk.exists(path)]
        for offset, byte in enumerate(data):
            there = {copy[offset] for copy in copies if offset < len(copy)}
            if len(copies) == 2 and len(there) == 1 and byte not in there and offset >= 128:
                damaged.overwrite(path, offset, bytes(there))


@pytest.mark.parametrize("seed", seeds(1))
def test_scenario_tigerbeetle_0_16_11_total_loss_of_every_disk_one_after_the_other(seed: int) -> None:
    """TigerBeetle 0.16.11 had no remedy for a node that lost its whole disk.

    Here every disk of the cluster is lost once, each after the one before it has been filled again from the
    others; in the end no original disk is left and everything that was acknowledged is there.
    """

    async def script(stage: Stage) -> None:
        for name, role in stage.storage.items():
            assert len(await stage.write(25)) == 25
            await stage.whole()
            role.hold()
            role.power_off()
            role.disk.wipe()
            role.memory.forget()
            assert len(await stage.write(10)) == 10  # the others continue
            role.release()
            await stage.repairs.refill(name)
            await stage.whole()
        assert len(await stage.read_all()) == 3 * 35

    play(seed, script)


@pytest.mark.parametrize("seed", seeds(4))
def test_scenario_a_lost_disk_does_not_vote(seed: int) -> None:
    """A record is acknowledged by two replicas; one of them loses its disk, the owner dies, and only the
    empty disk and the one that never had the record are there: release 0.13.2 would take their word and
    forget the record.

    Here nothing is decided until the one that has it is back; then it is there.
    """

    async def script(stage: Stage) -> None:
        assert len(await stage.write(20)) == 20
        await stage.whole()
        late, lost, keeper = stage.rng.sample(list(stage.storage.values()), 3)
        late.hold()
        late.power_off()
        assert len(await stage.write(10)) == 10
        owner = stage.owner()
        stage.dark([lost, keeper, owner])
        lost.disk.wipe()
        lost.memory.forget()
        stage.light([late, lost, owner])
        refill = stage.loop.create_task(stage.repairs.refill(lost.name))
        blocked = await stage.write(3, deadline_seconds=20.0)
        assert blocked == []
        assert not stage.serving()
        stage.light([keeper])
        await refill
        await stage.until(stage.serving, 60.0, "the partition is served again")
        assert len(await stage.write(5)) == 5
        assert stage.history.book.mark(0) >= 34
        assert all(op.outcome is not Outcome.PENDING for op in stage.history.appends)

    play(seed, script)
