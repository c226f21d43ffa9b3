"""Where observations come from: a ZooKeeper connection that is made when it is needed and made again after a
failure, and the observer on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.errors import UnreachableError
from waltz_admin.kept_connections import KeptConnections
from waltz_admin.observer import ClusterObserver
from waltz_admin.reports import DOES_NOT_REPORT, ServerReport, ask_reports
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

REPORT_SECONDS = 2.0
"""For the report of a server: it must not hold up what is observed."""
ASK_AGAIN_SECONDS = 600.0
"""A server that has no such report: it writes a line into its log for each question."""


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
        self._silent: dict[int, float] = {}
        """Id of a server without such a report -> when it is asked again."""

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
        """What these servers report. One that has no such report is asked again after some minutes only, or
        under its next id: a server that was replaced has another one."""
        now = time.monotonic()
        self._silent = {one: until for one, until in self._silent.items() if until > now}
        asked = [one for one in servers if one[0] not in self._silent]
        self._reporting.keep({endpoint for _, endpoint in asked})
        found = await ask_reports(asked, parts, self._reporting.to, timeout_seconds=REPORT_SECONDS)
        self._silent |= {one.server_id: now + ASK_AGAIN_SECONDS for one in found if one.silent}
        left = {one: endpoint for one, endpoint in servers if one in self._silent}
        known = {one.server_id for one in found}
        return found + [
            ServerReport(one, endpoint, DOES_NOT_REPORT) for one, endpoint in left.items() if one not in known
        ]

    async def close(self) -> None:
        """End the connections; harmless when there are none."""
        observer, self._observer = self._observer, None
        store, self._store = self._store, None
        await self._reporting.close()
        if observer is not None:
            await observer.close()
        if store is not None:
            await store.close()
