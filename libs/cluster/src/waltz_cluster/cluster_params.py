"""Reading what a cluster is: its name, number of partitions, and the key of its storage nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from waltz_cluster.errors import (
    ClusterMismatchError,
    ClusterNotFoundError,
    ConnectError,
    ConnectionLostError,
    NoNodeError,
    SerializationError,
    SessionLostError,
)
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams, StoreParams
from waltz_cluster.store import ZooKeeperReads

T = TypeVar("T")

START_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
MAX_PARTITIONS = 1_000_000
"""Of a cluster. Who reads a number beyond would ask for as many znodes, until its memory is full."""


async def patiently(read: Callable[[], Awaitable[T]], timeout_seconds: float = START_SECONDS) -> T:
    """A read at the start of a process, repeated while ZooKeeper comes and goes. For reads only: their
    repetition is harmless.

    ConnectError (one line) when no attempt that began within `timeout_seconds` was answered; other errors
    pass.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while True:
        try:
            return await read()
        except (ConnectionLostError, SessionLostError) as error:
            if loop.time() + _PAUSE_SECONDS > deadline:
                raise ConnectError(
                    f"ZooKeeper gave no answer within {timeout_seconds:g} s: {error}"
                ) from None
        await asyncio.sleep(_PAUSE_SECONDS)


async def read_cluster_params(store: ZooKeeperReads, root: str) -> ClusterParams:
    """Data of the root; ClusterNotFoundError (one line) when it is not there or not a cluster's, or has a
    number of partitions that no cluster has."""
    try:
        data, _ = await store.get(root)
    except NoNodeError:
        raise ClusterNotFoundError(nothing_there("cluster", root)) from None
    try:
        params = ClusterParams.from_bytes(data)
    except SerializationError as error:
        raise ClusterNotFoundError(f"{root} is not the root of a cluster: {error}") from None
    _check_count(root, params.num_partitions)
    return params


async def read_store_params(store: ZooKeeperReads, root: str) -> StoreParams:
    """Data of `store`; ClusterNotFoundError when it is not there, or has a number of partitions that no
    cluster has."""
    path = ClusterPaths(root).store
    try:
        data, _ = await store.get(path)
        params = StoreParams.from_bytes(data)
    except NoNodeError:
        raise ClusterNotFoundError(nothing_there("store", path)) from None
    except SerializationError as error:
        raise ClusterNotFoundError(f"{path} does not hold store parameters: {error}") from None
    _check_count(path, params.num_partitions)
    return params


def nothing_there(what: str, path: str) -> str:
    """What is said where a cluster's root, or its `store`, is missing."""
    return (
        f"there is no {what} at {path}: check cluster.root and zookeeper.connectString; if there was one, bring its data back "
        "(`waltz zk import` or `waltz zk rebuild`), for storage nodes refuse a cluster with another key; only if the cluster "
        "was never used, `waltz zk create` makes it"
    )


def _check_count(path: str, count: int) -> None:
    if not 0 <= count <= MAX_PARTITIONS:
        raise ClusterNotFoundError(f"{path} has {count} partitions, and a cluster has 0 to {MAX_PARTITIONS}")


async def read_params(store: ZooKeeperReads, root: str) -> tuple[ClusterParams, StoreParams]:
    """Both; ClusterMismatchError when they disagree on the number of partitions."""
    cluster, params = await read_cluster_params(store, root), await read_store_params(store, root)
    if cluster.num_partitions != params.num_partitions:
        raise ClusterMismatchError(
            f"{root} says {cluster.num_partitions} partitions, its store {params.num_partitions}: they must agree"
        )
    return cluster, params
