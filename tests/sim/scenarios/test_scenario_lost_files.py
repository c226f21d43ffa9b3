"""Files of a storage directory are lost behind the node's back, in the interleaving that makes a short copy
cost a record."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations

import pytest

from tests.sim.cluster.state import LOST_FILES
from tests.sim.cluster.storage_role import StorageRole
from tests.sim.kernel.disk import DATA_DIRECTORY, Seconds, partition_directory
from tests.sim.scenarios.stage import Stage, play, seeds
from waltz_storage.engine.layout import DATA_SUFFIXES, INDEX_SUFFIX, SIDECAR_NAME, WITNESS_NAME

Lose = Callable[[StorageRole], bool]
"""Takes files away; whether the node can continue without them."""
INSIDE = partition_directory(0)
WITNESS = f"{DATA_DIRECTORY}/{WITNESS_NAME}"
FILES = 5  # of two segments, and the side file


async def told_by_two(stage: Stage, lose: Lose, *, reset: bool = False) -> None:
    """Safety A1's example: records are acknowledged by two, one of them loses files, the third never had
    them, the keeper is late.

    Nothing is decided by the copy that lost something: until the keeper is back nothing is acknowledged, then
    everything is there.
    """
    assert len(await stage.write(20)) == 20
    await stage.whole()
    lagging, lost, keeper = stage.rng.sample(list(stage.storage.values()), 3)
    lagging.disk.sync_seconds = Seconds(
        1.2, 1.4
    )  # slower than the power cut, faster than the request timeout
    assert len(await stage.write(5)) == 5
    owner = stage.owner()
    stage.dark([lagging, lost, keeper, owner])
    lagging.heal_disk()
    lost.disk.land_all()
    harmless = lose(lost)
    if not harmless:
        stage.state.rotten[lost.name, 0] = LOST_FILES
        stage.state.destroyed(lost.name, [0])
    stage.light([lagging, lost, owner])
    if harmless:
        await stage.until(stage.serving, 60.0, "the two continue")
    else:
        assert await stage.write(3, deadline_seconds=20.0) == []
        assert not stage.serving()
        assert reset or (lost.node is not None and "damaged" in lost.node.manager.problems()[0])
    stage.light([keeper])
    await stage.until(stage.serving, 60.0, "the partition is served again")
    assert stage.history.book.mark(0) >= 24
    if reset:
        assert lost.node is None, "it serves without its witness"
        lost.hold()
        lost.kill()
        lost.memory.forget()
        lost.restored = True
        stage.state.forget_rot(lost.name)
        lost.release()
    elif not harmless:
        await stage.repairs.rebuild(lost.name, 0)
    await stage.whole()
    assert len(await stage.write(5)) == 5


def files_of(role: StorageRole) -> list[str]:
    """The newest last."""
    return sorted(role.disk.listdir(INSIDE), key=lambda name: (name == SIDECAR_NAME, name))


SUBSETS = list(chain.from_iterable(combinations(range(FILES), size) for size in range(1, FILES + 1)))


@pytest.mark.parametrize("places", SUBSETS, ids=lambda places: "".join(map(str, places)))
def test_scenario_any_subset_of_the_files_of_a_partition_is_lost(places: tuple[int, ...]) -> None:
    """A repair of the file system, a careless `rm`, half a restore: with all of them gone, or with the newest
    segment and the side file, the copy opened as a healthy voter with a short log, and five acknowledged
    records were cut."""

    def lose(role: StorageRole) -> bool:
        names = files_of(role)
        assert len(names) == FILES, names
        gone = [names[place] for place in places]
        for name in gone:
            role.disk.remove(f"{INSIDE}/{name}")
        return all(name.endswith(INDEX_SUFFIX) for name in gone)

    play(sum(places), lambda stage: told_by_two(stage, lose))


@pytest.mark.parametrize("seed", seeds(3))
def test_scenario_the_directory_of_a_partition_is_lost(seed: int) -> None:
    """The same with the directory itself."""

    def lose(role: StorageRole) -> bool:
        role.disk.remove_dir(INSIDE)
        return False

    play(seed, lambda stage: told_by_two(stage, lose))


@pytest.mark.parametrize("also", ["", *DATA_SUFFIXES[:1]])
@pytest.mark.parametrize("seed", seeds(2))
def test_scenario_the_witness_is_lost(seed: int, also: str) -> None:
    """Alone, or with the newest segment: the node does not start, and takes part again after
    `restore-reset`."""

    def lose(role: StorageRole) -> bool:
        role.disk.remove(WITNESS)
        if also:
            newest = max(name for name in files_of(role) if name.endswith(also))
            for suffix in (also, INDEX_SUFFIX):
                role.disk.remove(f"{INSIDE}/{newest[:-4]}{suffix}")
        return False

    play(seed, lambda stage: told_by_two(stage, lose, reset=True))
