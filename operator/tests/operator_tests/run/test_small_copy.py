"""The bounds of a copy that the operator makes itself, and that it asks for its Lease on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from operator_tests.plan.cluster import facts
from waltz_admin.errors import OfflineCopyError
from waltz_operator.model.actions import CopyPartition
from waltz_operator.model.snapshot import TreeView
from waltz_operator.run import small_copy
from waltz_operator.run.lease import LeaseLostError
from waltz_operator.run.small_copy import SmallCopyError, copy_small
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Record, ReqId, SessionInfo, data_checksum

ACTION = CopyPartition(0, "n0:1", 2, "n3:1", 2)
PLAIN = TlsSettings(enabled=False)


class Node:
    """A storage node in memory, with one partition: both its ports."""

    def __init__(self, records: list[Record], *, available: bool = True, hangs: bool = False) -> None:
        self.records = records
        self.available = available
        self.hangs = hangs
        self.appends = 0
        self.spoil: Callable[[Record], Record] = lambda one: one

    async def partition_status(self) -> dict[int, bool]:
        return {0: self.available}

    async def last_session_info(self, partition_id: int) -> SessionInfo:
        return SessionInfo(7, -1, len(self.records) - 1)

    async def record_list(self, partition_id: int, transaction_id: int, max_count: int) -> list[Record]:
        if self.hangs:
            await asyncio.Event().wait()
        return self.records[transaction_id : transaction_id + max_count]

    async def max_transaction_id(self, session_id: int, partition_id: int, **more: Any) -> int:
        return len(self.records) - 1

    async def truncate(self, *arguments: Any, **more: Any) -> int:
        raise AssertionError("nothing is to be cut")

    async def append(self, session_id: int, partition_id: int, records: list[Record], **more: Any) -> None:
        self.appends += 1
        self.records += [self.spoil(one) for one in records]

    async def set_low_water_mark(self, *arguments: Any, **more: Any) -> None:
        pass


def connected(monkeypatch: pytest.MonkeyPatch, source: Node, target: Node) -> None:
    @asynccontextmanager
    async def connections(*arguments: Any, **more: Any) -> AsyncIterator[tuple[Node, Node, Node]]:
        yield source, target, target

    monkeypatch.setattr(small_copy, "copy_connections", connections)


def run(check: Callable[[], None] = lambda: None) -> None:
    tree = facts().tree
    assert isinstance(tree, TreeView)
    asyncio.run(copy_small(ACTION, tree, PLAIN, check))


def filled(count: int, size: int = 10) -> Node:
    return Node([_record(number, bytes([number % 256]) * size) for number in range(count)])


def _record(number: int, data: bytes) -> Record:
    return Record(number, ReqId(1, 2, 3, number), 7, data, data_checksum(data))


def test_both_are_equal_when_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = filled(250), Node([], available=False)
    connected(monkeypatch, source, target)
    run()
    assert target.records == source.records


def test_a_copy_of_small_records_takes_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred records in each, a partition that was written for some minutes took seconds."""
    source, target = filled(5000), Node([], available=False)
    connected(monkeypatch, source, target)
    run()
    assert target.records == source.records
    assert target.appends <= 3


def test_a_copy_that_differs_is_an_error_that_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = filled(3), Node([], available=False)
    target.spoil = lambda one: one._replace(data=b"other", checksum=data_checksum(b"other"))
    connected(monkeypatch, source, target)
    with pytest.raises(SmallCopyError, match="differs") as error:
        run()
    assert error.value.retriable


def test_a_target_that_is_switched_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connected(monkeypatch, filled(3), Node([]))
    with pytest.raises(SmallCopyError, match="take it offline"):
        run()


def test_what_an_earlier_copy_has_left_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that comes back finds the volumes that were kept."""
    source, target = filled(250), filled(120)
    target.available = False
    connected(monkeypatch, source, target)
    run()
    assert target.records == source.records


def test_one_that_has_grown_is_left_to_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_copy, "MAX_COPY_BYTES", 1000)
    connected(monkeypatch, filled(200), Node([], available=False))
    with pytest.raises(SmallCopyError, match="has grown"):
        run()


def test_one_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_copy, "COPY_SECONDS", 0.01)
    source = filled(3)
    source.hangs = True
    connected(monkeypatch, source, Node([], available=False))
    with pytest.raises(SmallCopyError, match="has not ended within"):
        run()


def test_nothing_is_written_after_the_lease_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_copy, "BATCH_SIZE", 100)
    source, target = filled(250), Node([], available=False)
    connected(monkeypatch, source, target)
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise LeaseLostError("lost")

    with pytest.raises(LeaseLostError):
        run(check)
    assert len(target.records) == 100


def test_its_errors_are_those_of_the_package() -> None:
    assert not issubclass(SmallCopyError, OfflineCopyError)  # which nobody tries again
