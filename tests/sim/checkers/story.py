"""Made-up runs for the tests of the checkers: a correct history and its log, to be spoiled in one place."""

from __future__ import annotations

import zlib
from typing import Any

from tests.sim.checkers.history import AppendOp, FeedLog, History, Truth
from tests.sim.checkers.suite import check_all
from waltz_protocol.types import Record, ReqId

NODES = ("storage-1", "storage-2", "storage-3")


class Story:
    """Appends commit at once, unless configured otherwise; every second is one event."""

    def __init__(self, partitions: int = 1) -> None:
        self.seconds = 0.0
        self.history = History(lambda: self.seconds)
        self.log: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}

    def invoke(self, workload: str = "blind", body: dict[str, Any] | None = None, **more: Any) -> AppendOp:
        """An append begins."""
        self.seconds += 1.0
        partition = more.pop("partition", 0)
        process = more.pop("process", "writer")
        return self.history.invoke(process, workload, partition, body or {}, **more)

    def commit(self, op: AppendOp) -> Record:
        """It comes to be in the log; nobody is informed."""
        log = self.log[op.partition]
        checksum = zlib.crc32(op.data)
        record = Record(len(log), ReqId(1, 1, op.partition, op.uid), op.header, op.data, checksum)
        log.append(record)
        return record

    def told(self, op: AppendOp) -> AppendOp:
        """It commits and its caller is informed."""
        self.seconds += 1.0
        self.history.committed(op, self.commit(op).transaction_id)
        return op

    def append(self, workload: str = "blind", body: dict[str, Any] | None = None, **more: Any) -> AppendOp:
        """All of it."""
        return self.told(self.invoke(workload, body, **more))

    def feed(self, after: int | None = -1, partition: int = 0, until: int | None = None) -> FeedLog:
        """A reader reads what is there."""
        feed = self.history.feed("reader", partition, after)
        for record in self.log[partition][(-1 if after is None else after) + 1 : until]:
            feed.delivered(record.transaction_id, record.req_id, record.header, record.data, True)
        return feed

    def truth(self) -> Truth:
        """Everything quiet, all replicas equal."""
        return Truth(
            log={partition: list(records) for partition, records in self.log.items()},
            replicas={
                partition: {node: list(records) for node in NODES} for partition, records in self.log.items()
            },
            high_water_marks={partition: len(records) - 1 for partition, records in self.log.items()},
        )

    def broken(self, truth: Truth | None = None) -> set[str]:
        """Names of the invariants that do not hold; without the second opinion."""
        found, _ = check_all(self.history, self.truth() if truth is None else truth, second_opinion=False)
        return {violation.invariant for violation in [*self.history.violations, *found]}
