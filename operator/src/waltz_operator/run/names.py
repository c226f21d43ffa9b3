"""Host names of storage nodes and servers, looked up on threads of their own cluster: the name server of one
cluster's external nodes may be silent, and each lookup then keeps its thread for ten seconds and longer,
whether or not somebody waits for it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

QUICK_THREADS = 2
SLOW_THREADS = 1
"""Of one cluster; they begin with its first lookup of the kind."""
SLOW_SECONDS = 1.0
"""A name whose last lookup took longer waits for the thread of the slow ones."""

LATE_SECONDS = 30.0
"""So long an answer counts that took longer than that."""

Key = tuple[str, str]
"""Namespace and name of a cluster."""


class _Found(NamedTuple):
    seconds: float
    addresses: Sequence[str]
    error: OSError | ValueError | None


class ClusterNames:
    """The lookups of one cluster. A name waits for a thread, or has one, once at most, and names take turns:
    so those of a silent name server hold up the others only until they are known as slow, and one that is
    answered again has its turn. One writer: the loop."""

    def __init__(self) -> None:
        self._quick: ThreadPoolExecutor | None = None
        self._slow: ThreadPoolExecutor | None = None
        self._slow_names: set[str] = set()
        self._asked: dict[str, asyncio.Future[_Found]] = {}
        self._late: dict[str, tuple[float, Sequence[str]]] = {}
        self._closed = False

    async def lookup(self, host: str) -> Sequence[str]:
        """OSError, ValueError. Who is cancelled leaves the lookup as it is; an answer that took long is kept
        for `LATE_SECONDS`, as it may have come when nobody waited any longer."""
        if self._closed:
            raise OSError("the cluster is gone")
        loop = asyncio.get_running_loop()
        until, addresses = self._late.get(host, (0.0, ()))
        if loop.time() < until:
            return addresses
        asked = self._asked.get(host)
        if asked is None:
            try:
                asked = self._asked[host] = loop.run_in_executor(self._threads(host), _look_up, host)
            except RuntimeError as error:
                raise OSError(f"no thread can be started: {error}") from None
            asked.add_done_callback(lambda ended: self._ended(host, ended))
        try:
            found = await asyncio.shield(asked)
        except asyncio.CancelledError:
            if asked.cancelled() and self._closed:
                raise OSError("the cluster is gone") from None
            raise
        if found.error is not None:
            raise found.error
        return found.addresses

    def _threads(self, host: str) -> ThreadPoolExecutor:
        if host in self._slow_names:
            if self._slow is None:
                self._slow = ThreadPoolExecutor(SLOW_THREADS, "slow names")
            return self._slow
        if self._quick is None:
            self._quick = ThreadPoolExecutor(QUICK_THREADS, "names")
        return self._quick

    def _ended(self, host: str, ended: asyncio.Future[_Found]) -> None:
        del self._asked[host]
        if ended.cancelled():
            return
        found = ended.result()
        self._late.pop(host, None)
        if found.seconds <= SLOW_SECONDS:
            self._slow_names.discard(host)
            return
        self._slow_names.add(host)
        if found.error is None:
            self._late[host] = asyncio.get_running_loop().time() + LATE_SECONDS, found.addresses

    def close(self) -> None:
        """Nothing is looked up any longer. A thread that is in a lookup ends with it."""
        self._closed = True
        for threads in (self._quick, self._slow):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)


class Names:
    """Owner of the lookups of each cluster. One writer: the loop."""

    def __init__(self) -> None:
        self._clusters: dict[Key, ClusterNames] = {}

    def of(self, key: Key) -> ClusterNames:
        """Those of this cluster, until it is forgotten."""
        return self._clusters.setdefault(key, ClusterNames())

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        if (found := self._clusters.pop(key, None)) is not None:
            found.close()

    def close(self) -> None:
        """End all of them."""
        for key in list(self._clusters):
            self.forget(key)


def _look_up(host: str) -> _Found:
    """In a thread."""
    began = time.monotonic()
    addresses: Sequence[str] = ()
    error: OSError | ValueError | None = None
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    except (OSError, ValueError) as e:
        error = e
    return _Found(time.monotonic() - began, addresses, error)
