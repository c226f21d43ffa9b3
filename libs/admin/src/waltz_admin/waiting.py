"""Waiting until a change of replicas is complete: every replica takes part in the present store session of
its partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from waltz_admin.errors import AdminError
from waltz_admin.verify import Check, VerifyReport, verify_cluster
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings

_LOOK_SECONDS = 0.5
_QUESTION_SECONDS = 10.0


class NotCompleteError(AdminError):
    """The change was made and is not complete in time; it continues without this command."""

    retriable = True


def _silent(text: str) -> None:
    """The default: reports nothing."""


async def wait_complete(
    store: ZooKeeperStore,
    root: str,
    partitions: Iterable[int],
    *,
    tls: TlsSettings,
    timeout_seconds: float,
    report: Callable[[str], object] = _silent,
) -> None:
    """Until all checks of these partitions pass, one after another; NotCompleteError with the first reason.

    That a node still has a partition which is no longer assigned to it does not count: it is removed after
    this. A partition that was never started has nothing to complete.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    metadata = StoreMetadata(store, root)
    for partition in partitions:
        while not await metadata.never_started(partition):
            found = await verify_cluster(
                store, root, partition=partition, timeout_seconds=_QUESTION_SECONDS, tls=tls
            )
            left = [r for r in found.failures if r.check is not Check.STORAGE_CONSISTENCY]
            if not left:
                break
            reason = f"partition {partition}: {left[0].reason}"
            if loop.time() > deadline:
                raise NotCompleteError(
                    f"not complete after {timeout_seconds:g} s ({reason}); the change is still in progress"
                )
            report(f"waiting: {reason}")
            await asyncio.sleep(_LOOK_SECONDS)


async def wait_verified(
    store: ZooKeeperStore,
    root: str,
    *,
    partition: int | None,
    question_seconds: float,
    tls: TlsSettings,
    timeout_seconds: float,
    report: Callable[[str], object] = _silent,
) -> VerifyReport:
    """`verify_cluster` again and again until it passes or the time is over; the last report."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while True:
        found = await verify_cluster(
            store, root, partition=partition, timeout_seconds=question_seconds, tls=tls
        )
        if found.passed or loop.time() >= deadline:
            return found
        first = found.failures[0]
        report(f"waiting: partition {first.partition_id}: {first.reason}")
        await asyncio.sleep(min(_LOOK_SECONDS, max(0.0, deadline - loop.time())))
