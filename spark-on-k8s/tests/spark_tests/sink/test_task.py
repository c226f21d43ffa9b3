"""The attempts of several queries in one process: which client they write with, and what a repeated batch
finds of them. On the in-process log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pyarrow as pa
import pytest

from waltz_client import WaltzClient
from waltz_client.testing import InProcessLog
from waltz_spark.connection import ClusterIdentity, Connection, close_all
from waltz_spark.options import STREAM_WRITE
from waltz_spark.sink.options import WriteOptions
from waltz_spark.sink.task import write_task
from waltz_spark.sink.task_claims import CLAIM_HEADER, TaskKey
from waltz_spark.sink.task_writer import TaskResult

CLIENT = {
    "zookeeper.connectString": "localhost:1",
    "cluster.root": "/waltz",
    "client.ssl.enabled": "false",
    "checkpointLocation": "/x",
}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessLog]:
    """What every connection of this process leads to."""
    log = InProcessLog()

    async def open_client(_: Connection, stack: AsyncExitStack) -> tuple[WaltzClient, ClusterIdentity]:
        return await stack.enter_async_context(log.client()), ClusterIdentity("k", "n", 1)

    monkeypatch.setattr(Connection, "_open", open_client)
    yield log
    close_all()


def attempt(query: str, *data: bytes, claim_header: int = CLAIM_HEADER) -> TaskResult:
    """The only task of the first batch of a query."""
    options = WriteOptions.load({**CLIENT, "claimHeader": str(claim_header)}, STREAM_WRITE)
    batch = pa.RecordBatch.from_pydict({"data": pa.array(data, pa.binary())})
    return write_task(options, TaskKey(query, 0, 0), {0: -1}, iter([batch]))


@pytest.mark.parametrize("other_header", [CLAIM_HEADER, CLAIM_HEADER - 1])
def test_queries_that_share_a_process_do_not_take_each_others_rows(
    log: InProcessLog, other_header: int
) -> None:
    """The second one may claim under another header, which the first one does not know. The driver dies
    before the batch of the first one is committed: it is repeated."""
    attempt("first", b"a", b"shared")
    attempt("second", b"b", b"shared", claim_header=other_header)
    close_all()
    again = attempt("first", b"a", b"shared")
    assert (again.written, again.found) == (0, 2)
    data = Counter(one.data for one in log.partition(0).transactions if one.header == 0)
    assert data == Counter({b"a": 1, b"b": 1, b"shared": 2})
