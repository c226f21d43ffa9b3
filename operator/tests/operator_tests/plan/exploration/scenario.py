"""What people ask for: specifications to change between, migrations, and how much bad luck there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from waltz_operator.model.desired import Memory
from waltz_operator.model.task import Task, TaskKind

from .servers import Shares
from .world import BESIDE, Luck, Spec, Universe, World, connect


class Scenario(NamedTuple):
    """`changes`: which specification may follow which. `task`: a migration that a person creates once,
    and may cancel."""

    name: str
    universe: Universe
    changes: dict[int, tuple[int, ...]]
    luck: Luck
    task: Task | None = None
    fresh: bool = False


def empty(universe: Universe, luck: Luck) -> World:
    """Nothing is there but the first specification."""
    nodes, partitions = len(universe.groups), universe.partitions
    return World(
        spec=0,
        memory=Memory(),
        tasks=(),
        tree=False,
        registered=frozenset(),
        assigned=(frozenset(),) * partitions,
        meta=(None,) * partitions,
        data=((None,) * nodes,) * partitions,
        committed=(0,) * partitions,
        pods=(None,) * nodes,
        sets=(None,) * nodes,
        claims=(None,) * nodes,
        servers=None,
        jobs=(),
        luck=luck,
        shares=Shares((1, 1, 2)) if universe.loads else None,
    )


def requests(world: World, scenario: Scenario) -> Iterator[World]:
    """What a person may do next."""
    if world.luck.changes:
        for spec in scenario.changes.get(world.spec, ()):
            yield world._replace(spec=spec, luck=world.luck._replace(changes=world.luck.changes - 1))
    if scenario.task is not None and not world.tasks:
        yield world._replace(tasks=(scenario.task,))
    for task in world.tasks:
        if world.luck.deadlines and not task.over and task.progressed_at is not None:
            yield world._replace(
                tasks=(replace(task, progressed_at=LONG_AGO),),
                luck=world.luck._replace(deadlines=world.luck.deadlines - 1),
            )
        if world.luck.changes and not task.cancel and not task.over:
            yield world._replace(
                tasks=(replace(task, cancel=True),),
                luck=world.luck._replace(changes=world.luck.changes - 1),
            )


LONG_AGO = -1e9
"""When a migration got further last whose deadline has passed."""


def _task(kind: TaskKind, **given: object) -> Task:
    return Task(name="m", uid="m", kind=kind, created="1", **given)  # type: ignore[arg-type]


_THREE = ("1", "2", "3")
_FOUR = ("1", "2", "3", "4")
_SPARE = ("1", "1", "2", "3")
_TWO_AND_TWO = ("1", "1", "2", "2", "3", "3")


def scenarios() -> tuple[Scenario, ...]:
    """All of them."""
    three, four = Spec((0, 1, 2)), Spec((0, 1, 2, 3))
    gone = Spec((0, 1, 2), reclaim_delete=True, deleting=True)
    return (
        Scenario(
            "install and delete",
            Universe(_THREE, 2, (Spec((0, 1, 2), reclaim_delete=True), gone)),
            {0: (1,)},
            Luck(crashes=1, changes=1, trees=1),
            fresh=True,
        ),
        Scenario(
            "grow and shrink",
            Universe(
                _FOUR, 2, (three, four._replace(reclaim_delete=True), three._replace(reclaim_delete=True))
            ),
            {0: (1,), 1: (2,), 2: (1,)},
            Luck(crashes=1, jobs=1, changes=3),
        ),
        Scenario(
            "exchange a group",
            Universe(_FOUR, 1, (three, Spec((1, 2, 3))), small=True),
            {0: (1,), 1: (0,)},
            Luck(crashes=1, jobs=1, changes=2),
        ),
        Scenario(
            "roll a template",
            Universe(_THREE, 2, (three, Spec((0, 1, 2), "t2"), Spec((0, 1, 2), "bad"))),
            {0: (1, 2), 1: (0, 2), 2: (0, 1)},
            Luck(crashes=1, disks=1, changes=2),
        ),
        Scenario(
            "roll beside something that crashes",
            Universe(_THREE, 2, (three, Spec((0, 1, 2), BESIDE), Spec((0, 1, 2), "t2"))),
            {0: (1,), 1: (2, 0), 2: (1,)},
            Luck(crashes=1, changes=2),
        ),
        Scenario(
            "restarts wait for a window",
            Universe(
                _THREE,
                1,
                (
                    three,
                    Spec((0, 1, 2), "t2", closed=True),
                    Spec((0, 1, 2), "t2"),
                    Spec((0, 1, 2), "bad"),
                    Spec((0, 1, 2), closed=True),
                ),
            ),
            {0: (1, 3), 1: (2, 4), 2: (4,), 3: (4,), 4: (2, 0)},
            Luck(crashes=1, changes=3),
        ),
        Scenario(
            "back to an earlier release",
            Universe(_THREE, 1, (three, Spec((0, 1, 2), "t2"), Spec((0, 1, 2), down=True))),
            {0: (1,), 1: (2,), 2: (1,)},
            Luck(crashes=1, changes=3),
        ),
        Scenario(
            "a StatefulSet is refused",
            Universe(_THREE, 1, (three, Spec((0, 1, 2), "t2", refused=(1,)), Spec((0, 1, 2), "t2"))),
            {0: (1,), 1: (2, 0), 2: (1,)},
            Luck(crashes=1, disks=1, changes=3),
        ),
        Scenario(
            "roll two nodes a group",
            Universe(_TWO_AND_TWO, 2, (Spec((0, 1, 2, 3, 4, 5)), Spec((0, 1, 2, 3, 4, 5), "t2"))),
            {0: (1,), 1: (0,)},
            Luck(crashes=1, changes=2),
        ),
        Scenario(
            "roll while growing",
            Universe(_FOUR, 1, (three, four, Spec((0, 1, 2, 3), "t2"))),
            {0: (1,), 1: (2, 0), 2: (0, 1)},
            Luck(crashes=1, changes=2),
        ),
        Scenario(
            "drain a node",
            Universe(_SPARE, 2, (Spec((0, 1, 2, 3)),)),
            {},
            Luck(crashes=1, jobs=1, changes=1),
            task=_task(TaskKind.DRAIN, source=connect(0)),
        ),
        Scenario(
            "drain two partitions at a time",
            Universe(_SPARE, 2, (Spec((0, 1, 2, 3)), Spec((1, 2, 3))), small=True),
            {0: (1,), 1: (0,)},
            Luck(crashes=1, jobs=1, changes=1, disks=1),
            task=_task(TaskKind.DRAIN, source=connect(0), parallel=2),
        ),
        Scenario(
            "give a drain up",
            Universe(_SPARE, 2, (Spec((0, 1, 2, 3)), Spec((1, 2, 3))), small=True),
            {0: (1,), 1: (0,)},
            Luck(crashes=1, jobs=1, changes=1, deadlines=2),
            task=_task(TaskKind.DRAIN, source=connect(0), deadline_seconds=60, parallel=2),
        ),
        Scenario(
            "drain a node that is alone",
            Universe(_SPARE, 1, (Spec((0, 2, 3)), Spec((0, 1, 2, 3)))),
            {0: (1,), 1: (0,)},
            Luck(crashes=1, changes=2, deadlines=1),
            task=_task(TaskKind.DRAIN, source=connect(0), deadline_seconds=60),
        ),
        Scenario(
            "take a node out of its group",
            Universe(_SPARE, 2, (Spec((0, 1, 2, 3)), Spec((1, 2, 3), reclaim_delete=True)), small=True),
            {0: (1,), 1: (0,)},
            Luck(crashes=1, jobs=1, changes=2),
        ),
        Scenario(
            "replace a lost disk",
            Universe(_THREE, 1, (three,)),
            {},
            Luck(crashes=1, disks=1, jobs=1, changes=1),
            task=_task(TaskKind.REPLACE, source=connect(1), target=""),
        ),
        Scenario(
            "lose a disk while changing",
            Universe(_FOUR, 1, (three, four, Spec((0, 1, 2), reclaim_delete=True))),
            {0: (1,), 1: (2,)},
            Luck(disks=1, changes=2),
        ),
        Scenario(
            "lose a disk while draining",
            Universe(_SPARE, 1, (Spec((0, 1, 2, 3)), Spec((1, 2, 3))), small=True),
            {0: (1,), 1: (0,)},
            Luck(disks=1, changes=1),
            task=_task(TaskKind.DRAIN, source=connect(0)),
        ),
        Scenario(
            "rebalance two nodes a group",
            Universe(_TWO_AND_TWO, 2, (Spec((0, 2, 4)), Spec((0, 1, 2, 3, 4, 5)))),
            {0: (1,), 1: (0,)},
            Luck(crashes=1, changes=2),
            task=_task(TaskKind.REBALANCE, group="1"),
        ),
        Scenario(
            "rebalance two nodes a group by bytes",
            Universe(_TWO_AND_TWO, 2, (Spec((0, 2, 4)), Spec((0, 1, 2, 3, 4, 5)))),
            {0: (1,), 1: (0,)},
            Luck(changes=1),
            task=_task(TaskKind.REBALANCE, group="1", by_bytes=True),
        ),
        Scenario(
            "partitions move by load",
            Universe(
                _THREE,
                3,
                (
                    three,
                    Spec((0, 1, 2), balance=True),
                    Spec((0, 1, 2), "t2", balance=True),
                ),
                loads=((0.5, 0.4, 0.01), (0.4, 0.01, 0.5)),
            ),
            {0: (1,), 1: (2, 0), 2: (1,)},
            Luck(crashes=1, changes=2, loads=1, servers=1),
            task=_task(TaskKind.DRAIN, source=connect(0)),
        ),
    )
