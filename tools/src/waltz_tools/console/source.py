"""Where observations come from: a ZooKeeper connection that is made when it is needed and made again after a
failure, and the observer on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.errors import UnreachableError
from waltz_admin.kept_connections import KeptConnections
from waltz_admin.kept_reports import KeptReports
from waltz_admin.observer import ClusterObserver
from waltz_admin.reports import ServerReport
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

REPORT_SECONDS = 2.0
"""For the report of a server: it must not hold up what is observed."""


class ClusterSource:
    """Asks the cluster. Owner of its connections; `close` ends them."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[ZooKeeperStore]],
        root: str,
        tls: TlsSettings,
        *,
        question_seconds: float,
    ) -> None:
        self._connect = connect
        self._root = root
        self._tls = tls
        self._question_seconds = question_seconds
        self._store: ZooKeeperStore | None = None
        self._observer: ClusterObserver | None = None
        self._reporting = KeptConnections(tls, REPORT_SECONDS)
        self._reports = KeptReports(self._reporting, REPORT_SECONDS, time.monotonic)

    async def observe(self) -> ClusterStatus:
        """The state now. UnreachableError when ZooKeeper does not answer in time, and what it raises."""
        try:
            async with asyncio.timeout(4 * self._question_seconds):
                if self._observer is None:
                    self._store = await self._connect()
                    self._observer = ClusterObserver(
                        self._store,
                        self._root,
                        tls=self._tls,
                        timeout_seconds=self._question_seconds,
                        clock=time.monotonic,
                    )
                return await self._observer.observe()
        except TimeoutError:
            await self.close()
            raise UnreachableError(
                f"ZooKeeper did not answer within {4 * self._question_seconds:g} s"
            ) from None
        except Exception:
            await self.close()  # the next question begins with new connections
            raise

    async def reports(self, servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        """What these servers report; see `KeptReports`."""
        self._reporting.keep({endpoint for _, endpoint in servers})
        return await self._reports.ask(servers, parts)

    async def close(self) -> None:
        """End the connections; harmless when there are none."""
        observer, self._observer = self._observer, None
        store, self._store = self._store, None
        await self._reporting.close()
        if observer is not None:
            await observer.close()
        if store is not None:
            await store.close()
