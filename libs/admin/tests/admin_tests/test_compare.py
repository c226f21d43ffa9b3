"""Two copies of a partition are equal record by record, or the first difference is named (safety rule F5)."""

from __future__ import annotations

import hashlib

import pytest

from waltz_admin.compare import DifferenceError, compare_partition
from waltz_protocol.records import pack_record
from waltz_protocol.types import Record, ReqId, SessionInfo, data_checksum


def record(transaction_id: int, data: bytes = b"data") -> Record:
    return Record(transaction_id, ReqId(1, 2, 3, transaction_id), 7, data, data_checksum(data))


class Copy:
    """The admin port of a node; `most`: it answers with fewer records than asked for."""

    def __init__(self, count: int, most: int = 1000) -> None:
        self.records = [record(i) for i in range(count)]
        self.most = most

    async def partition_status(self) -> dict[int, bool]:
        raise NotImplementedError

    async def last_session_info(self, partition_id: int) -> SessionInfo:
        raise NotImplementedError

    async def record_list(self, partition_id: int, transaction_id: int, max_count: int) -> list[Record]:
        return self.records[transaction_id : transaction_id + min(max_count, self.most)]


@pytest.mark.parametrize("most", [1, 3, 1000])
async def test_equal_copies_are_compared_through_the_last_record(most: int) -> None:
    seen: list[int] = []
    one, other = Copy(25, most), Copy(30)
    result = await compare_partition(one, other, 3, 24, batch_size=10, progress=seen.append)
    whole = hashlib.sha256(b"".join(map(pack_record, one.records))).hexdigest()
    assert result == (24, 25, whole)
    assert seen[-1] == 24
    assert await compare_partition(Copy(0), Copy(0), 3, -1) == (-1, 0, hashlib.sha256().hexdigest())


@pytest.mark.parametrize("at", [0, 9, 10, 24])
@pytest.mark.parametrize("changed", ["data", "request", "header"])
async def test_a_record_that_differs_is_named_also_the_first_and_the_last(at: int, changed: str) -> None:
    one, other = Copy(25), Copy(25)
    was = other.records[at]
    other.records[at] = {
        "data": record(at, b"atad"),
        "request": was._replace(req_id=ReqId(1, 2, 3, 99)),
        "header": was._replace(header=8),
    }[changed]
    with pytest.raises(DifferenceError, match=f"record {at} differs"):
        await compare_partition(one, other, 3, 24, batch_size=10)


@pytest.mark.parametrize("left", [0, 10, 24])
async def test_a_copy_that_ends_early_is_not_equal(left: int) -> None:
    with pytest.raises(DifferenceError, match=f"the destination does not hold record {left}"):
        await compare_partition(Copy(25), Copy(left), 3, 24, batch_size=10)
    with pytest.raises(DifferenceError, match=f"the source does not hold record {left}"):
        await compare_partition(Copy(left), Copy(25), 3, 24, batch_size=10)


async def test_the_same_damage_on_both_sides_is_not_equality() -> None:
    one, other = Copy(5), Copy(5)
    for copy in (one, other):
        copy.records[3] = copy.records[3]._replace(data=b"rotten")
    with pytest.raises(DifferenceError, match="record 3 of the source is damaged"):
        await compare_partition(one, other, 3, 4)


async def test_a_node_that_answers_with_another_record_is_not_believed() -> None:
    one, other = Copy(5), Copy(5)
    for copy in (one, other):
        del copy.records[2]
    with pytest.raises(DifferenceError, match="the source shows record 3 in the place of 2"):
        await compare_partition(one, other, 3, 4)
