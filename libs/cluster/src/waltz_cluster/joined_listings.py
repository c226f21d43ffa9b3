"""Listings of one znode's children, shared: one request is the answer for all who asked before it began.

A server that starts ten thousand partitions for the first time asks for each whether its metadata were ever
there, and every answer is the names of them all.

Invariants
  1. No answer is older than its question: who asks while a listing is in flight waits for the next one.
  2. At most one is in flight, so those who ask meanwhile share one as well.
  3. Who gives up takes the answer from nobody; an error is that of all who shared the listing.
"""

import asyncio

from waltz_cluster.errors import ConnectionLostError, StoreError
from waltz_cluster.store import ZnodeStat, ZooKeeperStore
from waltz_protocol.aio.tasks import spawn

Listing = tuple[frozenset[str], ZnodeStat]


class JoinedListings:
    """See the module. Owner: the loop."""

    def __init__(self, store: ZooKeeperStore, path: str) -> None:
        self._store = store
        self._path = path
        self._waiting: list[asyncio.Future[Listing]] = []
        self._busy = False
        """A listing is in flight, or begins at the end of this turn."""

    async def get(self) -> Listing:
        """Names of the children and Stat, as they are after this call.

        Errors as those of `ZooKeeperStore.get_children`. Safe to cancel.
        """
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[Listing] = loop.create_future()
        self._waiting.append(asked)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._begin)
        return await asked

    def _begin(self) -> None:
        asked, self._waiting = [each for each in self._waiting if not each.done()], []
        self._busy = bool(asked)
        if asked:
            spawn(self._list(asked), "znode-listing")

    async def _list(self, asked: list[asyncio.Future[Listing]]) -> None:
        problem: StoreError = ConnectionLostError("the listing of a znode was ended")
        found: Listing | None = None
        try:
            names, stat = await self._store.get_children(self._path)
            found = frozenset(names), stat
        except StoreError as error:
            problem = error
        finally:  # whatever ended it, nobody is left waiting
            for each in asked:
                if each.done():
                    continue
                if found is not None:
                    each.set_result(found)
                else:
                    each.set_exception(problem)
            self._begin()
