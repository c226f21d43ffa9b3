"""`waltz-operator copy-partition`: copy one partition from a storage node to another, compare both copies,
report, end.

Rate limited (bytes per second of records, both for copying and for comparing), resumable (the destination's
low-water mark follows each batch), and stopped by SIGTERM between two batches. The report is one JSON object,
written as the pod's termination message: `{"verifiedThrough": id, "checksum": hex, "copied": records,
"copiedBytes": bytes}`, or `{"error": text}`. It needs no ZooKeeper.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

from waltz_admin.compare import Comparison, compare_partition
from waltz_admin.errors import AdminError, OfflineCopyError
from waltz_admin.offline_copy import Progress, copy_connections, copy_partition
from waltz_cluster.serializers import StoreParams
from waltz_protocol.aio.storage_connection import StorageAdminConnection
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint, Record, SessionInfo

_log = logging.getLogger(__name__)

TERMINATION_LOG = "/dev/termination-log"
BATCH_SIZE = 200
_SAY_EVERY_SECONDS = 10.0
_RECORD_OVERHEAD_BYTES = 40


class StoppedError(AdminError):
    """SIGTERM: the copy continues from here when it is started again."""

    retriable = True


class RateLimitedSource:
    """The source's admin port, slowed down to a number of bytes per second (0 = not at all). Owner: the
    copy."""

    def __init__(
        self,
        port: StorageAdminConnection,
        bytes_per_second: int,
        stop: asyncio.Event,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._port = port
        self._rate = bytes_per_second
        self._stop = stop
        self._sleep = sleep
        self.total_bytes = 0
        self._debt_seconds = 0.0

    async def partition_status(self) -> dict[int, bool]:
        return await self._port.partition_status()

    async def last_session_info(self, partition_id: int) -> SessionInfo:
        return await self._port.last_session_info(partition_id)

    async def record_list(self, partition_id: int, transaction_id: int, max_count: int) -> list[Record]:
        """Waits first for what earlier batches took too fast. StoppedError."""
        if self._stop.is_set():
            raise StoppedError(f"stopped before record {transaction_id}; a restart continues from there")
        if self._debt_seconds > 0:
            await self._sleep(self._debt_seconds)
            self._debt_seconds = 0.0
        started = asyncio.get_running_loop().time()
        records = await self._port.record_list(partition_id, transaction_id, max_count)
        size = sum(len(record.data) + _RECORD_OVERHEAD_BYTES for record in records)
        self.total_bytes += size
        if self._rate > 0:
            taken = asyncio.get_running_loop().time() - started
            self._debt_seconds = max(0.0, size / self._rate - taken)
        return records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--cluster-key", type=UUID, required=True)
    parser.add_argument("--partitions", type=int, required=True, help="number of partitions of the cluster")
    parser.add_argument("--partition", type=int, required=True, help="the partition to copy")
    parser.add_argument(
        "--source", type=Endpoint.parse, required=True, metavar="HOST:PORT", help="admin port"
    )
    parser.add_argument(
        "--target", type=Endpoint.parse, required=True, metavar="HOST:PORT", help="admin port"
    )
    parser.add_argument("--target-storage-port", type=int, required=True)
    parser.add_argument("--rate-limit", type=int, default=0, help="bytes per second; 0 = unlimited")
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help="records per request")
    tls = parser.add_mutually_exclusive_group(required=True)
    tls.add_argument("--tls-directory", help="directory with tls.crt, tls.key and ca.crt")
    tls.add_argument("--plaintext", action="store_true")
    parser.add_argument("--report", default=TERMINATION_LOG, help="file for the report")


async def run(options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Copy, compare, report. AdminError (also reported): it ended too early, and can be started again."""
    try:
        report = await _copy_and_compare(options, stop)
    except AdminError as error:
        write_report(options.report, {"error": " ".join(str(error).split())})
        raise
    write_report(options.report, report)
    _log.info("done: %s", json.dumps(report))


async def _copy_and_compare(options: argparse.Namespace, stop: asyncio.Event) -> dict[str, object]:
    params = StoreParams(options.cluster_key, options.partitions)
    if not 0 <= options.partition < options.partitions:
        raise OfflineCopyError(
            f"there is no partition {options.partition}: the cluster has {options.partitions}"
        )
    tls = TlsSettings(enabled=False)
    if not options.plaintext:
        tls = TlsSettings(key_store=options.tls_directory, trust_store=options.tls_directory)
    async with copy_connections(
        params,
        options.partition,
        source_admin=options.source,
        destination_admin=options.target,
        destination_storage_port=options.target_storage_port,
        source_tls=tls,
        destination_tls=tls,
    ) as (source, destination, data):
        limited = RateLimitedSource(source, options.rate_limit, stop)
        progress = await copy_partition(
            limited, destination, data, options.partition, options.batch_size, _Teller("copied")
        )
        copied_bytes = limited.total_bytes
        compared: Comparison = await compare_partition(
            limited, destination, options.partition, progress.current, batch_size=options.batch_size
        )
    return {
        "verifiedThrough": compared.through,
        "checksum": compared.checksum,
        "copied": progress.copied,
        "copiedBytes": copied_bytes,
    }


class _Teller:
    """Logs the progress now and then."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._said_at = float("-inf")

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._said_at >= _SAY_EVERY_SECONDS:
            self._said_at = now
            _log.info(
                "%s %d records, at %d of %d", self._verb, progress.copied, progress.current, progress.target
            )


def write_report(path: str, report: dict[str, object]) -> None:
    """For the operator; a file that cannot be written (outside of a pod) is of no consequence."""
    try:
        Path(path).write_text(json.dumps(report), encoding="utf-8")
    except OSError as error:
        _log.debug("the report was not written to %s: %s", path, error)
