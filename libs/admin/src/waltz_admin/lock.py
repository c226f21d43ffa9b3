"""The admin lock (docs/zookeeper-layout.md, *How it is used*): who changes anything below `store` holds it.

It is an ephemeral znode, so it can be lost with the session. Loss is noticed: the lock belongs to the session
epoch it was taken in, `transaction` refuses to write in another one, and the transaction itself contains
the check that the znode is there. All writes inside also name the data versions read inside the lock, so even
the narrowest race with the next holder ends in a version conflict, not in a lost change.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from waltz_admin.errors import AdminError, AdminLockBusyError, AdminLockLostError
from waltz_cluster.cluster_params import nothing_there
from waltz_cluster.errors import ConnectionLostError, NodeExistsError, NoNodeError, StoreError
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.store import CheckOp, Op, SessionState, ZooKeeperStore

_log = logging.getLogger(__name__)


class AdminLock:
    """`async with AdminLock(store, paths) as lock: … await lock.transaction(ops)`.

    Entering waits up to `wait_seconds` (AdminLockBusyError); cancellation while waiting leaves nothing
    behind.
    """

    def __init__(self, store: ZooKeeperStore, paths: ClusterPaths, *, wait_seconds: float = 60.0) -> None:
        self._store = store
        self._paths = paths
        self._wait_seconds = wait_seconds
        self._epoch = -1

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_seconds
        while not await self._try_to_take():
            changed = asyncio.Event()
            if await self._store.exists(self._paths.admin_lock, changed.set) is None:
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                raise AdminLockBusyError(
                    f"another tool has held {self._paths.admin_lock} for {self._wait_seconds:g} s; nothing was changed"
                ) from None
        return self

    async def _try_to_take(self) -> bool:
        self._epoch = self._store.epoch
        try:
            await self._store.create(self._paths.admin_lock, None, ephemeral=True)
        except NodeExistsError:
            return await self._is_mine()  # an earlier attempt may have succeeded although its answer was lost
        except NoNodeError:
            raise AdminError(nothing_there("store", self._paths.store)) from None
        return True

    async def _is_mine(self) -> bool:
        stat = await self._store.exists(self._paths.admin_lock)
        return (
            stat is not None
            and stat.ephemeral_owner == self._store.session_id
            and self._epoch == self._store.epoch
        )

    def check(self) -> None:
        """AdminLockLostError unless the session that took the lock is still the present one and surely
        alive."""
        now = asyncio.get_running_loop().time()
        if (
            self._store.epoch != self._epoch
            or self._store.state is not SessionState.CONNECTED
            or now >= self._store.last_contact + self._store.session_timeout_seconds
        ):
            raise AdminLockLostError(
                "the admin lock was lost with the ZooKeeper session; nothing was written"
            )

    async def transaction(self, ops: Sequence[Op]) -> None:
        """All or nothing, only while the lock is held. VersionConflictError, ConnectionLostError (outcome
        unknown: run the command again, it completes or finds the change made)."""
        self.check()
        try:
            await self._store.transaction([CheckOp(self._paths.admin_lock), *ops])
        except NoNodeError:
            if await self._store.exists(self._paths.admin_lock) is None:
                raise AdminLockLostError("the admin lock was taken away; nothing was written") from None
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if await self._is_mine():
                await self._store.delete(self._paths.admin_lock)
        except (NoNodeError, ConnectionLostError) as failure:
            _log.debug("the admin lock ends with the session: %s", failure)
        except StoreError as failure:
            _log.warning("the admin lock was not released, it ends with the session: %s", failure)
