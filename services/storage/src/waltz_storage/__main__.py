"""`waltz-storage CONFIG.yaml`: run a storage node until SIGTERM or SIGINT.

Exit codes: `waltz_runtime.exit_code`.
"""

from __future__ import annotations

import waltz_runtime.early_end  # noqa: F401 - before what takes a while to import

# isort: split
import asyncio
import functools
import logging
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import structlog

from waltz_cluster.cluster_params import patiently, read_store_params
from waltz_cluster.config.files import load_file
from waltz_cluster.serializers import StoreParams
from waltz_cluster.zk_client import connect
from waltz_protocol.aio.tls import server_context
from waltz_runtime.certificates import follow, publish_expiry
from waltz_runtime.command import run_role
from waltz_runtime.graphite import GraphiteReporter
from waltz_runtime.metrics import MetricsRegistry
from waltz_runtime.process import CutShortBy, end_at_once
from waltz_storage.engine.files import close_to_others, disk_usage
from waltz_storage.engine.free_space import FreeSpace, default_reserve
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.metric_meanings import BUILD, MEANINGS
from waltz_storage.service.server import NodeOptions, StorageNode, open_manager
from waltz_storage.settings import StorageSettings

SWITCH_INTERVAL_SECONDS = 0.0005

log = structlog.get_logger(__name__)


def now_ms() -> int:
    """The wall clock, for creation times in file headers."""
    return int(time.time() * 1000)


def free_space_of(settings: StorageSettings) -> FreeSpace:
    """Room of the file system below the storage directory, with the reserve that is configured or the default
    one."""
    look = functools.partial(disk_usage, settings.directory)
    try:
        usage = look()
    except OSError:
        return FreeSpace()  # opening the directory says what is wrong with it
    reserve = settings.disk_reserve_bytes
    return FreeSpace(look, default_reserve(usage) if reserve is None else reserve)


async def store_params(settings: StorageSettings) -> StoreParams:
    """Cluster key and partition count from ZooKeeper, which is used for nothing else."""
    store = await connect(settings)
    try:
        return await patiently(lambda: read_store_params(store, settings.cluster_root))
    finally:
        await store.close()


def close_directory(directory: str) -> None:
    """What a node makes is its user's alone; rights of others on an existing directory are taken away, or it
    is named in the log."""
    try:
        close_to_others(directory)
    except (FileNotFoundError, NotADirectoryError):
        return  # said when it is opened
    except OSError as error:
        log.warning(
            "the storage directory may be open to other users", directory=directory, reason=error.strerror
        )


async def serve(settings: StorageSettings, stop: asyncio.Event) -> None:
    """Run a node until `stop` is set. Errors with `user_error` are the operator's."""
    host, tls = settings.host(), server_context(settings.tls_settings("storage.ssl"))
    params = None
    async with CutShortBy(stop):
        params = await store_params(settings)
    if params is None:
        return
    close_directory(settings.directory)
    registry = MetricsRegistry(meanings=MEANINGS, build=BUILD)
    publish_expiry(registry, "waltz-storage.tls", tls)
    with ThreadPoolExecutor(settings.disk_threads, thread_name_prefix="disk") as executor:
        manager = await open_manager(
            settings.directory,
            params.cluster_key,
            params.num_partitions,
            functools.partial(
                StorageManager.open,
                now_ms=now_ms,
                settings=settings.engine(),
                room=free_space_of(settings),
                journal=settings.journal(),
                journal_id=uuid4(),
                journal_directory=settings.journal_directory,
            ),
            executor,
        )
        data_limits, admin_limits = settings.port_limits()
        options = NodeOptions(
            host,
            settings.port,
            settings.admin_port,
            settings.http_port,
            tls,
            settings.max_frame_bytes,
            settings.queue_limits(),
            inline_limits=settings.inline_limits(),
            data_limits=data_limits,
            admin_limits=admin_limits,
            receive_bytes=settings.receive_bytes,
            newest_version=settings.max_protocol_version,
            on_defect=end_at_once,
            process_id=uuid4(),
        )
        node = StorageNode(manager, options, executor, registry)
        for partition_id, problem in manager.problems().items():
            log.error("partition is out of service", partition=partition_id, reason=problem)
        await node.start()
        log.info(
            "ready",
            host=host,
            port=node.port,
            admin_port=node.admin_port,
            http_port=node.http_port,
            partitions=sorted(manager.partitions),
        )
        try:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(GraphiteReporter(registry, settings.graphite()).run()),
                    group.create_task(node.disk.run()),
                    group.create_task(follow(tls)),
                ]
                await stop.wait()
                for task in beside:
                    task.cancel()
        finally:
            await node.close()
    log.info("closed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    # The loop and the disk threads share the interpreter's lock; with the default of 5 ms a thread that comes
    # back from a sync would wait that long for a busy loop.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    logging.captureWarnings(True)
    return run_role("storage", arguments, load_file, StorageSettings.from_mapping, serve)


if __name__ == "__main__":
    sys.exit(main())
