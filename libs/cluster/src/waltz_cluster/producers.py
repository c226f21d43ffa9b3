"""Named producers: what outlives the clients that append under one name (ADR 38).

`<root>/producers/<name>` has the client id under which all instances of the producer append, the epoch of the
newest instance, and per partition a *checkpoint*: up to where the log was searched, and the highest sequence
number found there. Release 0.13.2 never looks at it.

`ProducerRegistry` is all that a client needs of it; `ZooKeeperProducers` keeps it in ZooKeeper. A client of
`servers` has `waltz_client._internal.directory.producers`, for which a server uses this one.

Invariants: the client id never changes once the record is there; epoch, origins and marks only grow; only the
instance of the newest epoch writes checkpoints, each with the version of the record in which it has seen its
own epoch.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from waltz_cluster.errors import (
    ClusterError,
    ConfigError,
    ConnectionLostError,
    IdsExhaustedError,
    NodeExistsError,
    NoNodeError,
    VersionConflictError,
)
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import MAX_ID, Checkpoint, ProducerRecord
from waltz_cluster.store import Watch, ZooKeeperStore
from waltz_protocol.backoff import AROUND, Backoff

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_GIVE_UP_SECONDS = 30.0


class ProducerGoneError(ClusterError):
    """The record of a named producer was deleted while an instance of it lived."""


class NewerEpochError(ClusterError):
    """A newer instance of a named producer has begun; its epoch is `epoch`."""

    def __init__(self, name: str, epoch: int) -> None:
        super().__init__(f"the producer {name} has a newer instance, of epoch {epoch}")
        self.epoch = epoch


class EpochWentBackError(ClusterError):
    """The record of a named producer has an epoch below that of a living instance: it is an older copy."""

    def __init__(self, name: str, found: int, epoch: int) -> None:
        super().__init__(
            f"the record of the producer {name} in ZooKeeper has the epoch {found}, below the epoch {epoch} of this "
            "instance: an older copy was put back"
        )
        self.epoch = found


def check_epoch(name: str, found: int, epoch: int) -> None:
    """Before an instance with `epoch` writes to a record that has `found`: NewerEpochError,
    EpochWentBackError."""
    if found > epoch:
        raise NewerEpochError(name, found)
    if found < epoch:
        raise EpochWentBackError(name, found, epoch)


class ProducerRegistry(Protocol):
    """Where named producers are kept. Whatever it raises besides what is named is a ClusterError."""

    async def find(self, name: str) -> ProducerRecord | None:
        """What is known of a producer now; None: it never was there."""
        ...

    async def create(self, name: str, record: ProducerRecord) -> None:
        """Keep a new producer, unless one of that name is there by now."""
        ...

    async def raise_epoch(self, name: str) -> ProducerRecord:
        """Begin an instance: the record with an epoch that no other instance has. ProducerGoneError."""
        ...

    async def newest_epoch(self, name: str, changed: Callable[[], None]) -> int:
        """The epoch now; `changed` is called once when it may have changed. ProducerGoneError."""
        ...

    async def write_checkpoints(self, name: str, epoch: int, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Of the instance with this epoch: NewerEpochError when it is not the newest, EpochWentBackError,
        ProducerGoneError."""
        ...


def check_name(name: str) -> str:
    """The name of a producer; ConfigError for one that cannot be."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a producer: 1 to 100 letters, digits, dots, hyphens and underscores, "
            "the first of which is a letter or a digit"
        )
    return name


class ZooKeeperProducers:
    """See the module and `ProducerRegistry`. Reads go to what ZooKeeper has committed (`sync`)."""

    def __init__(self, store: ZooKeeperStore, paths: ClusterPaths, rng: random.Random) -> None:
        self._store = store
        self._paths = paths
        self._rng = rng

    async def find(self, name: str) -> ProducerRecord | None:
        """See `ProducerRegistry`."""
        path = self._paths.producer(check_name(name))

        async def read() -> ProducerRecord | None:
            await self._store.sync(path)
            try:
                return ProducerRecord.from_bytes((await self._store.get(path))[0])
            except NoNodeError:
                return None

        return await self._patiently(read)

    async def create(self, name: str, record: ProducerRecord) -> None:
        """See `ProducerRegistry`."""
        path = self._paths.producer(check_name(name))

        async def create() -> None:
            try:
                await self._store.create(path, record.to_bytes(), make_parents=True)
            except NodeExistsError:
                pass

        await self._patiently(create)

    async def count(self) -> int:
        """How many named producers the cluster has."""
        await self._store.sync(self._paths.producers)
        try:
            return (await self._store.get(self._paths.producers))[1].num_children
        except NoNodeError:
            return 0

    async def raise_epoch(self, name: str, to: int | None = None) -> ProducerRecord:
        """See `ProducerRegistry`. An epoch whose write has no certain outcome is not used.

        `to`: this one and no other, for an instance that asks from afar and may ask twice: NewerEpochError or
        EpochWentBackError when the record has not the one right before it.
        """
        path = self._paths.producer(check_name(name))

        async def write() -> ProducerRecord:
            await self._store.sync(path)
            record, version = await self._read(name, path)
            if to is not None:
                check_epoch(name, record.epoch, to - 1)
            if record.epoch >= MAX_ID:
                raise IdsExhaustedError(f"{path}: all {MAX_ID} epochs have been given out")
            record = replace(record, epoch=record.epoch + 1)
            await self._store.set(path, record.to_bytes(), version=version)
            return record

        return await self._patiently(write)

    async def newest_epoch(self, name: str, changed: Callable[[], None]) -> int:
        """See `ProducerRegistry`. A member of the ensemble that is behind may not have a new producer yet, so
        its record counts as deleted when it is absent after a `sync`, too. (An older epoch there does no
        harm: `changed` is called when that member has caught up.)"""
        path = self._paths.producer(check_name(name))
        try:
            record, _ = await self._read(name, path, changed)
        except ProducerGoneError:
            await self._store.sync(path)
            record, _ = await self._read(name, path, changed)
        return record.epoch

    async def write_checkpoints(self, name: str, epoch: int, checkpoints: Mapping[int, Checkpoint]) -> None:
        """See `ProducerRegistry`."""
        path = self._paths.producer(check_name(name))

        async def write() -> None:
            await self._store.sync(path)  # the epoch may have been raised in another session of ZooKeeper
            record, version = await self._read(name, path)
            check_epoch(name, record.epoch, epoch)
            await self._store.set(path, record.with_checkpoints(checkpoints).to_bytes(), version=version)

        await self._patiently(write)

    async def _read(self, name: str, path: str, watch: Watch | None = None) -> tuple[ProducerRecord, int]:
        try:
            data, stat = await self._store.get(path, watch)
        except NoNodeError:
            raise ProducerGoneError(f"the producer {name} was deleted: {path} does not exist") from None
        return ProducerRecord.from_bytes(data), stat.version

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Again after a conflict and a lost connection, for 30 s."""
        backoff = Backoff(0.005, 0.5, self._rng, spread=AROUND)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GIVE_UP_SECONDS
        while True:
            try:
                return await attempt()
            except (VersionConflictError, ConnectionLostError):
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(backoff.next_seconds())
