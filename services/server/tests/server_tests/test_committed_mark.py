"""The committed mark: it only rises, and a partition has one of it."""

import ast
from pathlib import Path

import pytest

import waltz_server
from waltz_server.store.committed_mark import CommittedMark, CommittedMarkError
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import PartitionRig


def test_a_mark_that_is_not_known_lets_nothing_pass() -> None:
    mark = CommittedMark()
    assert (mark.known, mark.value, mark.txid) == (False, None, -1)
    mark.rise_to(-1)  # a recovery of an empty log
    assert (mark.known, mark.value, mark.txid) == (True, -1, -1)


def test_safety_d1_a_mark_never_goes_down() -> None:
    mark = CommittedMark()
    mark.rise_to(5)
    mark.rise_to(5)
    with pytest.raises(CommittedMarkError, match="from 5 to 4"):
        mark.rise_to(4)
    assert mark.value == 5


async def test_safety_d1_whatever_sends_to_clients_is_held_back_by_the_same_mark() -> None:
    """Below its mark the partition hides what the store and the caches have."""
    async with PartitionRig(records=5) as rig:
        partition, client = rig.partition, FakeClient()
        await rig.mount(client)
        marks = [part._mark for part in (partition, partition._appends, partition._feeds, partition._data)]
        assert all(mark is marks[0] for mark in marks)
        assert partition.high_water_mark == 4


def test_no_part_of_the_server_keeps_a_mark_of_its_own() -> None:
    """An attribute with the name of the mark would be a second copy of it."""
    folder = Path(waltz_server.__file__).parent
    copies = [
        f"{path.name}:{node.lineno}"
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr.endswith(("high_water_mark", "known_mark"))
    ]
    assert copies == []
