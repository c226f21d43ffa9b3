"""Processes die and partitions move while a task is in the middle of its range: every row once, with its
data.

The task is held after its first rows, by a function of the query that waits for a file; the range is far
larger than what can be under way in buffers, so most of it is read after the fault.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession

from spark_tests.local_log import LocalLog

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

COUNT = 6_000
PAYLOAD_BYTES = 4_000
SECONDS = 90.0
PARTITION = 0


@pytest.fixture(scope="module")
def large(log: LocalLog) -> range:
    """Ids of many large transactions in one partition."""
    return log.append(PARTITION, (i.to_bytes(4, "big") * (PAYLOAD_BYTES // 4) for i in range(COUNT)))


def held(directory: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes batches on; says that the first has come and waits until it may continue."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for number, batch in enumerate(batches):
            if number == 0:
                (directory / "reached").touch()
                while not (directory / "go").exists():
                    time.sleep(0.02)
            yield batch

    return pass_on


def owner(log: LocalLog) -> str:
    """The role that serves the partition."""
    endpoint = log.client.endpoint_of(PARTITION)
    return next(role for role in log.cluster.server_roles if log.cluster.server_endpoint(role) == endpoint)


def kill_the_owner(log: LocalLog) -> str:
    role = owner(log)
    log.run(log.cluster.kill_role(role))
    return role


def stop_the_owner(log: LocalLog) -> str:
    """In order: the partition moves to the other server."""
    role = owner(log)
    log.run(log.cluster.stop_role(role))
    return role


def kill_a_storage_node(log: LocalLog) -> str:
    log.run(log.cluster.kill_role("storage-1"))
    return "storage-1"


@pytest.mark.parametrize("fault", [kill_the_owner, stop_the_owner, kill_a_storage_node])
def test_a_fault_in_the_middle_of_a_range_is_invisible(
    fault: Callable[[LocalLog], str], spark: SparkSession, log: LocalLog, large: range, tmp_path: Path
) -> None:
    places = {
        "startingTransactions": f'{{"0": {large[0]}}}',
        "endingTransactions": f'{{"0": {large[-1] + 1}}}',
    }
    frame = log.read(spark, partitions="0", **places, batchTransactions=100).load()
    counted = frame.mapInArrow(held(tmp_path), frame.schema).selectExpr(
        "count(*) as rows",
        "count(distinct transaction_id) as ids",
        "min(transaction_id) as first",
        "max(transaction_id) as last",
        f"count_if(crc32(data) = (checksum & 4294967295L) and length(data) = {PAYLOAD_BYTES}) as whole",
    )
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(counted.first)
        deadline = time.monotonic() + SECONDS
        while not (tmp_path / "reached").exists() and not running.done():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        gone = fault(log)
        try:
            (tmp_path / "go").touch()
            found = running.result(SECONDS)
        finally:
            log.run(log.cluster.start_role(gone))
    assert found == Row(rows=COUNT, ids=COUNT, first=large[0], last=large[-1], whole=COUNT)
