"""Session ids and replica states of one partition in ZooKeeper: every write version-checked, no answer
guessed.

Rules (A7, A3): an uncertain answer to taking a session id burns that id, for it may be taken, and not by us
only; an uncertain answer to writing replica states is settled by reading, because their content is ours alone
while the session id in ZooKeeper is ours.
"""

from __future__ import annotations

import asyncio
import random

from waltz_cluster.errors import (
    ClusterError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SerializationError,
    VersionConflictError,
)
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata
from waltz_server.store.api import StoreError
from waltz_server.store.recovery import Recovery
from waltz_server.store.waiting import retry_backoff

_CONFLICT_INITIAL_MS = 100
_CONFLICT_LIMIT_MS = 1000
_ANSWER_SECONDS = 2.0


class GenerationMismatchError(StoreError):
    """ZooKeeper holds a higher generation: the partition belongs to someone else, or our news are late."""

    retriable = True

    def __init__(self, stored: int, own: int) -> None:
        super().__init__(f"the partition is owned with generation {stored}, this server has {own}")
        self.stored = stored


class MetadataFaultError(StoreError):
    """Partition metadata is missing or unreadable though it must be there; an operator is needed."""


class SessionSupersededError(StoreError):
    """ZooKeeper holds another session, or other replica states, than this session was based on."""

    retriable = True


class MetadataKeeper:
    """The only writer of one partition's metadata in this server. Owner: the partition store."""

    def __init__(self, metadata: StoreMetadata, partition_id: int, rng: random.Random) -> None:
        self._metadata = metadata
        self._partition_id = partition_id
        self._rng = rng
        self._burned = -1
        self._conflicts = retry_backoff(_CONFLICT_INITIAL_MS, _CONFLICT_LIMIT_MS, rng)
        self._written: list[PartitionMetadata] = []
        self._last_write: tuple[PartitionMetadata, int] | None = None
        """What was written last, and the version that it got; None when the next write has to read first."""

    async def recorded(self, generation: int) -> tuple[PartitionMetadata, int]:
        """What ZooKeeper holds, and its version; made now if the partition was never started.

        Raises `GenerationMismatchError`, `MetadataFaultError`, and what ZooKeeper raises for a lost session.
        """
        while True:
            stored, version = await self._read()
            if stored is None:
                await self._create()
                continue
            if stored.generation > generation:
                raise GenerationMismatchError(stored.generation, generation)
            return stored, version

    async def is_current(self, version: int) -> bool:
        """Whether this is still the version, said by ZooKeeper's leader: a read may be answered by a follower
        that lags."""
        try:
            await self._metadata.check_partition(self._partition_id, version)
        except (VersionConflictError, NoNodeError):
            return False
        return True

    async def take(
        self, generation: int, recorded: PartitionMetadata, version: int, least: int
    ) -> PartitionMetadata | None:
        """Take the next session id, not below `least`, over what was recorded; returns the metadata now
        stored, whose `session_id` is ours alone, or None (after a pause) when it may have been written by
        somebody else: read again.
        """
        session_id = max(recorded.session_id, self._burned, least - 1) + 1
        taken = PartitionMetadata(generation, session_id, recorded.replicas)
        self._burned = session_id  # also when this call is cancelled: never tried twice
        self._last_write = None
        try:
            written = await self._metadata.write_partition(self._partition_id, taken, version)
        except (VersionConflictError, ConnectionLostError):
            await asyncio.sleep(self._conflicts.next_seconds())
            return None
        self._conflicts.reset()
        self._written = [taken]
        self._last_write = taken, written
        return taken

    async def write_states(self, recovery: Recovery) -> PartitionMetadata:
        """Write what the recovery says about the replicas; returns what ZooKeeper holds for certain.

        Raises `SessionSupersededError` when the session is not ours any longer, or someone changed the
        states, and what ZooKeeper raises. After an error or a cancellation the outcome is unknown: call
        again, it reads first. The first time it does not: the version that the session id got is enough.
        """
        backoff = retry_backoff(_CONFLICT_INITIAL_MS, _CONFLICT_LIMIT_MS, self._rng)
        while True:
            last, self._last_write = self._last_write, None
            if last is not None and last[0].session_id == recovery.session_id:
                stored, version = last
            else:
                stored, version = await self.check(recovery.session_id)
            target = recovery.metadata_after(stored)
            if target == stored:
                self._written = [stored]
                return stored
            self._written.append(target)
            try:
                await self._metadata.write_partition(self._partition_id, target, version)
            except VersionConflictError:
                await asyncio.sleep(backoff.next_seconds())
                continue
            self._written = [target]
            return target

    async def check(self, session_id: int) -> tuple[PartitionMetadata, int]:
        """Read; raises `SessionSupersededError` unless everything is as this session left it."""
        stored, version = await self._read()
        if stored is None:
            raise MetadataFaultError("partition metadata has vanished from ZooKeeper")
        if stored.session_id != session_id:
            raise SessionSupersededError(f"session {stored.session_id} has replaced session {session_id}")
        if stored not in self._written:
            raise SessionSupersededError("the replica states in ZooKeeper were changed by someone else")
        return stored, version

    async def is_ours(self, session_id: int) -> bool:
        """Whether ZooKeeper's leader says that everything is as this session left it. Not known is no."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                _, version = await self.check(session_id)
                return await self.is_current(version)
        except (ClusterError, StoreError, TimeoutError):
            return False

    async def _read(self) -> tuple[PartitionMetadata | None, int]:
        try:
            return await self._metadata.read_partition(self._partition_id)
        except SerializationError as error:
            raise MetadataFaultError(f"partition metadata is unreadable: {error}") from error

    async def _create(self) -> None:
        """The first start of a partition; refused when metadata of some partition was ever deleted (rule
        A2)."""
        if not await self._metadata.never_started(self._partition_id):
            stored, _ = await self._read()
            if stored is not None:
                return
            raise MetadataFaultError(
                "partition metadata is missing, and ZooKeeper shows that metadata was deleted: restore it manually"
            )
        try:
            await self._metadata.create_partition(self._partition_id, PartitionMetadata())
        except (NodeExistsError, ConnectionLostError):
            await asyncio.sleep(_CONFLICT_INITIAL_MS / 1000)
