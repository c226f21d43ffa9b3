"""The offline copy: checked, followed, resumable, and it ends."""

from collections.abc import Sequence

import pytest

from waltz_admin import offline_copy
from waltz_admin.errors import OfflineCopyError
from waltz_admin.offline_copy import Progress, check_records, copy_partition
from waltz_protocol.types import Record, ReqId, SessionInfo, data_checksum


def record(transaction_id: int, data: bytes | None = None) -> Record:
    payload = data if data is not None else f"data {transaction_id}".encode()
    return Record(transaction_id, ReqId(1, 2, 3, transaction_id), 7, payload, data_checksum(payload))


class Node:
    """Both ports of a storage node, in memory, with the rules of the storage protocol for offline
    requests."""

    def __init__(
        self, count: int, session: SessionInfo, *, assigned: bool = True, available: bool = True
    ) -> None:
        self.records = [record(i) for i in range(count)]
        self.session = session
        self.status = {3: available} if assigned else {}
        self.calls: list[str] = []
        self.die_at: str | None = None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.die_at == f"{name} {self.calls.count(name)}":
            raise ConnectionError("on purpose")

    async def partition_status(self) -> dict[int, bool]:
        return self.status

    async def last_session_info(self, partition_id: int) -> SessionInfo:
        self._call("info")
        return self.session

    async def record_list(self, partition_id: int, transaction_id: int, max_count: int) -> list[Record]:
        self._call("list")
        result: list[Record] = []
        for one in self.records:
            if one.transaction_id == transaction_id + len(result) and len(result) < max_count:
                result.append(one)
        return result

    def _check_offline(self, session_id: int, offline: bool) -> None:
        assert offline
        assert not self.status[3]
        assert session_id == self.session.session_id

    async def max_transaction_id(self, session_id: int, partition_id: int, *, offline: bool = False) -> int:
        self._check_offline(session_id, offline)
        return len(self.records) - 1

    async def truncate(
        self, session_id: int, partition_id: int, transaction_id: int, *, offline: bool = False
    ) -> int:
        self._check_offline(session_id, offline)
        self._call("truncate")
        del self.records[transaction_id + 1 :]
        return len(self.records) - 1

    async def append(
        self, session_id: int, partition_id: int, records: Sequence[Record], *, offline: bool = False
    ) -> None:
        self._check_offline(session_id, offline)
        self._call("append")
        assert [r.transaction_id for r in records] == list(
            range(len(self.records), len(self.records) + len(records))
        )
        self.records += records

    async def set_low_water_mark(
        self, session_id: int, partition_id: int, low_water_mark: int, *, offline: bool = False
    ) -> None:
        self._check_offline(session_id, offline)
        self._call("mark")
        assert low_water_mark >= self.session.low_water_mark, "a node refuses a mark below the one it has"
        local = min(low_water_mark, len(self.records) - 1)
        self.session = SessionInfo(session_id, low_water_mark, local)


def source(count: int, mark: int) -> Node:
    return Node(count, SessionInfo(8, mark + 1, mark))


def destination(count: int = 0, session: int = -1, mark: int = -1) -> Node:
    return Node(count, SessionInfo(session, mark, mark), available=False)


async def test_a_fresh_destination_is_filled_up_to_the_local_low_water_mark() -> None:
    a, b = source(60, 49), destination()
    seen: list[Progress] = []
    done = await copy_partition(a, b, b, 3, 20, seen.append)
    assert done == Progress(50, 49, 49)
    assert b.records == a.records[:50]
    assert [p.current for p in seen] == [-1, 19, 39, 49]
    assert b.session == SessionInfo(-1, 49, 49)


async def test_uncertain_records_of_the_destination_are_replaced() -> None:
    a, b = source(40, 39), destination(30, session=4, mark=9)
    b.records[10:] = [record(i, b"never committed") for i in range(10, 30)]
    done = await copy_partition(a, b, b, 3, 7)
    assert done.copied == 30
    assert b.records == a.records


@pytest.mark.parametrize("mark", [9, 14])
async def test_records_that_the_source_has_too_are_never_cut(mark: int) -> None:
    """The destination's vote for them may have been counted: in a recovery of the old quorum it is the only
    one that reports it."""
    a, b = source(26, mark), destination(24, session=8, mark=9)
    done = await copy_partition(a, b, b, 3, 7)
    assert done == Progress(0, mark, mark)
    assert b.records == a.records[:24]
    assert "truncate" not in b.calls


async def test_only_what_differs_is_cut_also_when_the_source_vouches_for_more_meanwhile() -> None:
    a, b = source(40, 19), destination(36, session=8, mark=9)
    b.records[25:] = [record(i, b"never committed") for i in range(25, 36)]

    def grow(_: Progress) -> None:
        a.session = SessionInfo(9, 39, 39)

    done = await copy_partition(a, b, b, 3, 10, grow)
    assert done == Progress(15, 39, 39)
    assert b.records == a.records
    assert b.calls.count("truncate") == 1


@pytest.mark.parametrize("differs", [10, 19])
async def test_a_single_record_that_differs_is_replaced_also_the_last_one(differs: int) -> None:
    a, b = source(20, 19), destination(20, session=8, mark=9)
    b.records[differs] = record(differs, b"never committed")
    done = await copy_partition(a, b, b, 3, 7)
    assert done.copied == 20 - differs
    assert b.records == a.records


async def test_a_replica_that_is_behind_its_low_water_mark_is_filled() -> None:
    """Servers may raise the mark of a replica before its records are copied."""
    a, b = source(60, 59), destination(20, session=4, mark=45)
    done = await copy_partition(a, b, b, 3, 10)
    assert done == Progress(40, 59, 59)
    assert b.records == a.records


async def test_no_request_holds_more_records_than_storage_nodes_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_copy, "MAX_BATCH_SIZE", 20)
    a, b = source(60, 49), destination()
    await copy_partition(a, b, b, 3, 1_000_000)
    assert b.calls.count("append") == 3


async def test_zookeeper_6_21_the_target_is_followed() -> None:
    a, b = source(30, 29), destination()

    def grow(progress: Progress) -> None:
        if progress.current == 29 and len(a.records) < 60:
            a.records += [record(i) for i in range(30, 60)]
            a.session = SessionInfo(9, 59, 59)

    done = await copy_partition(a, b, b, 3, 10, grow)
    assert done == Progress(60, 59, 59)


async def test_zookeeper_6_21_a_hole_in_the_source_ends_the_copy() -> None:
    a, b = source(40, 39), destination()
    del a.records[15:20]
    with pytest.raises(OfflineCopyError, match="hole: record 15 is missing"):
        await copy_partition(a, b, b, 3, 10)
    assert len(b.records) == 15
    assert a.calls.count("list") == 3


async def test_zookeeper_6_21_checksums_are_verified() -> None:
    a, b = source(40, 39), destination()
    a.records[25] = a.records[25]._replace(data=b"rotten")
    with pytest.raises(OfflineCopyError, match="record 25 of the source is damaged"):
        await copy_partition(a, b, b, 3, 10)
    assert len(b.records) == 20


def test_what_the_source_sends_is_checked() -> None:
    check_records([record(5), record(6)], 5, 6)
    with pytest.raises(OfflineCopyError, match="record 6 where 5 was due"):
        check_records([record(6)], 5, 9)
    with pytest.raises(OfflineCopyError, match="record 6 where 6 was due"):
        check_records([record(5), record(6)], 5, 5)


@pytest.mark.parametrize("step", ["append 1", "append 2", "mark 1", "mark 2", "list 3", "truncate 1"])
async def test_a_copy_that_died_anywhere_is_completed_by_the_next(step: str) -> None:
    a, b = source(60, 59), destination(15, session=2, mark=9)
    b.records[12:] = [record(i, b"never committed") for i in range(12, 15)]
    (a if step.startswith("list") else b).die_at = step
    with pytest.raises(ConnectionError):
        await copy_partition(a, b, b, 3, 20)
    a.die_at = b.die_at = None
    done = await copy_partition(a, b, b, 3, 20)
    assert done.current == 59
    assert b.records == a.records


async def test_preconditions() -> None:
    a, b = source(10, 9), destination()
    with pytest.raises(OfflineCopyError, match="not assigned to the source"):
        await copy_partition(Node(0, a.session, assigned=False), b, b, 3, 10)
    absent = Node(0, b.session, assigned=False)
    with pytest.raises(OfflineCopyError, match="not assigned to the destination"):
        await copy_partition(a, absent, absent, 3, 10)
    online = Node(0, b.session)
    with pytest.raises(OfflineCopyError, match="take it offline first"):
        await copy_partition(a, online, online, 3, 10)
    with pytest.raises(OfflineCopyError, match="batch size"):
        await copy_partition(a, b, b, 3, 0)
    assert a.calls == b.calls == []


async def test_a_source_that_is_behind_changes_nothing() -> None:
    a, b = source(10, 9), destination(30, session=4, mark=19)
    with pytest.raises(OfflineCopyError, match="up to 9 only"):
        await copy_partition(a, b, b, 3, 10)
    assert len(b.records) == 30


async def test_nothing_to_do() -> None:
    a, b = source(0, -1), destination()
    done = await copy_partition(a, b, b, 3, 10)
    assert done == Progress(0, -1, -1)
