"""Our server's partition stores speak to the recorded storage nodes of release 0.13.2."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.interop.recorded_storage import RecordedStorage, without_seq_num
from tests.interop.recordings import RecordedFrame, frame_of, lines
from tests.interop.replay import listening
from tests.interop.trees import ROOT, golden_tree, load_tree
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.aio.storage_connection import StorageConnection
from waltz_protocol.codec import STORAGE
from waltz_protocol.messages import storage
from waltz_protocol.records import pack_record
from waltz_protocol.types import Endpoint
from waltz_server.store.api import AppendEntry, StoreSettings
from waltz_server.store.replica_connection import ReplicaDirectory
from waltz_server.store.store import QuorumPartitionStore

LINKS = {"localhost:56285": "s0", "localhost:56295": "s1", "localhost:56305": "s2"}
STAGE_BEFORE, STAGE_AFTER = "03-assigned-storage2", "04-server-started"
SETTINGS = StoreSettings(request_timeout_seconds=10.0, recovery_grace_seconds=10.0)


def of_phases(*phases: str) -> list[RecordedFrame]:
    """Frames of the storage session between the lines of these phases and the next ones."""
    phase, found = "", []
    for line in lines("server-storage"):
        phase = line.get("phase", phase)
        if "hex" in line and phase in phases:
            found.append(frame_of(line))
    return found


class Listener:
    """What a store reports."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.committed_ids: list[int] = []
        self.news = asyncio.Event()

    def session_opened(self, high_water_mark: int) -> None:
        assert high_water_mark == -1
        self.opened.set()

    def session_lost(self, reason: str) -> None:
        """Happens at the end."""

    def committed(self, entries: Sequence[AppendEntry]) -> None:
        self.committed_ids += [entry.transaction_id for entry in entries]
        self.news.set()

    def failed(self, entries: Sequence[AppendEntry]) -> None:
        raise AssertionError("an append failed")

    def store_writable(self) -> None:
        """Nothing is that large."""


@asynccontextmanager
async def recorded_nodes(recorded: list[RecordedFrame]) -> AsyncIterator[tuple[dict[str, RecordedStorage], ReplicaDirectory]]:
    """The three recorded nodes and a directory of connections that finds them under their recorded names."""
    params = await_params()
    async with AsyncExitStack() as stack:
        peers = {
            name: RecordedStorage(frame for frame in recorded if frame.link == link) for name, link in LINKS.items()
        }
        ports = {name: await stack.enter_async_context(listening(lambda p=peer: p.answer)) for name, peer in peers.items()}  # type: ignore[misc]

        async def open_link(endpoint: Endpoint) -> StorageConnection:
            return await StorageConnection.open(
                Endpoint("127.0.0.1", ports[str(endpoint)]),
                cluster_key=params.cluster_key,
                num_partitions=params.num_partitions,
                tls=None,
                request_timeout_seconds=SETTINGS.request_timeout_seconds,
            )

        directory = ReplicaDirectory(open_link, settings=SETTINGS, rng=random.Random(1))
        try:
            yield peers, directory
        finally:
            await directory.close()
