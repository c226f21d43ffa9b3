"""The rows of the page *Partitions*: what has not changed is neither made nor sent again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tools_tests.console_rig import Source, cluster, console
from waltz_admin.cluster_status import ClusterStatus, PartitionStatus
from waltz_tools.console import rows as module
from waltz_tools.console.collector import Observation
from waltz_tools.console.history import Rates
from waltz_tools.console.pages import Page, partition_row
from waltz_tools.console.rows import PartitionRows


def seen(number: int, status: ClusterStatus, rates: dict[int, float] | None = None) -> Observation:
    return Observation(number, 1.0, 0.1, status, (), Rates(rates or {}, 0.0, {}))


def sent(rows: PartitionRows, since: int) -> tuple[int, int, list[int]]:
    """Number, since, ids of the rows."""
    found = json.loads(f"{{{rows.text(since)}}}")
    return found["number"], found["since"], [row["id"] for row in found["rows"]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Partitions of which a row was made."""
    found: list[int] = []

    def noted(one: Observation, partition: PartitionStatus) -> Page:
        found.append(partition.partition_id)
        return partition_row(one, partition)

    monkeypatch.setattr(module, "partition_row", noted)
    return found


def test_only_rows_that_have_changed_are_made_and_sent(made: list[int]) -> None:
    rows, status = PartitionRows(), cluster(3)
    rows.take(seen(1, status))
    assert made == [0, 1, 2]
    assert sent(rows, 0) == (1, 0, [0, 1, 2])
    made.clear()
    changed = replace(status.partitions[1], session_id=9)
    rows.take(seen(2, replace(status, partitions=(status.partitions[0], changed, status.partitions[2]))))
    assert made == [1]
    assert sent(rows, 1) == (2, 1, [1])
    assert sent(rows, 2) == (2, 2, [])
    assert sent(rows, 0) == (2, 0, [0, 1, 2])


def test_a_rate_that_changed_is_a_change_and_an_equal_row_is_none(made: list[int]) -> None:
    rows, status = PartitionRows(), cluster(2)
    rows.take(seen(1, status, {0: 1.0}))
    rows.take(seen(2, status, {0: 2.0}))
    assert sent(rows, 1) == (2, 1, [0])
    made.clear()
    rows.take(seen(3, cluster(2), {0: 2.0}))
    assert made == [0, 1], "other objects: they have to be compared"
    assert sent(rows, 2) == (3, 2, [])
    made.clear()
    rows.take(seen(3, cluster(2), {0: 2.0}))
    assert not made, "an observation is taken once"


def test_who_missed_observations_gets_all_that_changed_since() -> None:
    rows, status = PartitionRows(), cluster(3)
    rows.take(seen(1, status))
    rows.take(seen(2, status, {0: 1.0}))
    rows.take(seen(4, status, {0: 1.0, 2: 1.0}))
    assert sent(rows, 1) == (4, 1, [0, 2])
    assert sent(rows, 3) == (4, 3, [2])
    for nonsense in (-1, 5, 1000):
        assert sent(rows, nonsense) == (4, 0, [0, 1, 2])


def test_a_cluster_of_another_size_begins_again() -> None:
    rows = PartitionRows()
    rows.take(seen(1, cluster(3)))
    rows.take(seen(2, cluster(2)))
    assert sent(rows, 1)[2] == [0, 1]


async def test_a_page_that_has_an_observation_gets_what_changed() -> None:
    source = Source(cluster(3))
    async with console(source) as rig:
        first = await rig.page("/api/partitions")
        number = first["number"]
        assert isinstance(number, int)
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        at_rest = await rig.page(f"/api/partitions?since={rig.collector.number}")
        assert at_rest["rows"] == []
        source.now = cluster(3, healthy=False)
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        changed = await rig.page(f"/api/partitions?since={number}")
        assert (changed["since"], len(str(changed["rows"])) > 100) == (number, True)
        assert (await rig.get("/api/partitions?since=x"))[0] == 400
