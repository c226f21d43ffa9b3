"""Where observations come from: a ZooKeeper connection that is made when it is needed and made again after a
failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.errors import UnreachableError
from waltz_admin.status import read_status
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings


class ClusterSource:
    """Asks the cluster. Owner of its connection to ZooKeeper; `close` ends it."""

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

    async def observe(self) -> ClusterStatus:
        """The state now. UnreachableError when ZooKeeper does not answer in time, and what it raises."""
        try:
            async with asyncio.timeout(4 * self._question_seconds):
                if self._store is None:
                    self._store = await self._connect()
                return await read_status(
                    self._store, self._root, tls=self._tls, timeout_seconds=self._question_seconds
                )
        except TimeoutError:
            await self.close()
            raise UnreachableError(
                f"ZooKeeper did not answer within {4 * self._question_seconds:g} s"
            ) from None
        except Exception:
            await self.close()  # the next question begins with a new connection
            raise

    async def close(self) -> None:
        """End the connection; harmless when there is none."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()
