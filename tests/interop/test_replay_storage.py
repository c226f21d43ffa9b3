"""The recorded servers and tools of release 0.13.2 talk to our storage nodes; the replies are those of
0.13.2's nodes."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.recordings import GOLDEN, frame_of, lines, with_versions_of_0_13_2, zookeeper_tree
from tests.interop.replay import Replayer, Wire
from waltz_cluster.serializers import StoreParams
from waltz_protocol.codec import ADMIN, STORAGE
from waltz_runtime.metrics import MetricsRegistry
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.engine.storage_manager import StorageManager
from waltz_storage.service.server import NodeOptions, StorageNode

NUMBERS = (0, 1, 2)
THRESHOLDS = {0: 1_000_000_000, 1: 1024, 2: 1_000_000_000}
PARTITIONS = range(4)
SESSION = "server-storage"
LAST_CONNECTIONS = frozenset(
    {46, 47, 48}
)  # the recording ends with the nodes being stopped; ours are stopped later
PARAMS = StoreParams.from_bytes(
    bytes.fromhex(zookeeper_tree("03-assigned-storage2")["/waltz_gold/store"]["hex"])
)


@asynccontextmanager
async def node(directory: Path, threshold: int) -> AsyncIterator[StorageNode]:
    """A node of ours with the recorded cluster's key and all four partitions, plaintext, on free ports."""
    directory.mkdir()
    manager = StorageManager.open(
        str(directory),
        cluster_key=PARAMS.cluster_key,
        num_partitions=PARAMS.num_partitions,
        now_ms=lambda: 0,
        settings=EngineSettings(threshold),
    )
    for partition_id in PARTITIONS:
        manager.assign(partition_id)
    with ThreadPoolExecutor(2, thread_name_prefix="disk") as pool:
        running = StorageNode(manager, NodeOptions("127.0.0.1", 0, 0), pool, MetricsRegistry())
        await running.start()
        try:
            yield running
        finally:
            await running.close()


@asynccontextmanager
async def nodes(directory: Path) -> AsyncIterator[dict[str, int]]:
    """Three nodes; link name of the recording -> our port."""
    async with AsyncExitStack() as stack:
        ports: dict[str, int] = {}
        for number in NUMBERS:
            running = await stack.enter_async_context(node(directory / f"node{number}", THRESHOLDS[number]))
            ports[f"s{number}"], ports[f"a{number}"] = running.port, running.admin_port
        yield ports


def by_partition(raws: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Replies of one storage connection, per partition in their order; -1 is the connection itself (Hello,
    Open)."""
    grouped: dict[int, list[bytes]] = defaultdict(list)
    for raw in raws:
        if raw[:1] == b"H":
            grouped[-1].append(with_versions_of_0_13_2(raw, newest=0))
        else:
            grouped[STORAGE.decode(raw[7:], 0).partition_id].append(raw)  # type: ignore[attr-defined]
    return grouped


def without_metrics(raws: Iterable[bytes]) -> tuple[list[bytes], list[dict[str, Any]]]:
    """Replies of one admin connection: the determined ones as they are, and the metrics decoded."""
    plain: list[bytes] = []
    metrics: list[dict[str, Any]] = []
    for raw in raws:
        message = None if raw[:1] == b"H" else ADMIN.decode(raw[7:], 0)
        if message is not None and hasattr(message, "json"):
            metrics.append({"seq_num": message.seq_num, **json.loads(message.json)})  # type: ignore[attr-defined]
        else:
            plain.append(with_versions_of_0_13_2(raw, newest=0) if raw[:1] == b"H" else raw)
    return plain, metrics


def compare_metrics(ours: dict[str, Any], golden: dict[str, Any]) -> None:
    assert ours["seq_num"] == golden["seq_num"]
    ids = golden["gauges"]["waltz-storage.waltz-storage-partition-ids"]
    assert ours["gauges"]["waltz-storage.waltz-storage-partition-ids"] == ids
    for partition_id in ids["value"]:
        for name in ("session-id", "low-water-mark", "local-low-water-mark", "flags", "max-transaction-id"):
            full = f"waltz-storage.partition-{partition_id}.{name}"
            assert ours["gauges"][full] == golden["gauges"][full], full


def compare_files(directory: Path, number: int) -> None:
    """Segment and index files are byte-equal but for the creation time (bytes 4 to 12), control entries
    wholly."""
    golden = GOLDEN / "storage" / f"node{number}"
    ours = directory / f"node{number}"
    suffixes = (".seg", ".idx")
    names = sorted(str(path.relative_to(golden)) for path in golden.rglob("*") if path.suffix in suffixes)
    assert sorted(str(path.relative_to(ours)) for path in ours.rglob("*") if path.suffix in suffixes) == names
    for name in [*names, "waltz-storage.ctl"]:
        old, new = (golden / name).read_bytes(), (ours / name).read_bytes()
        assert new[:4] + new[12:] == old[:4] + old[12:], f"node {number}: {name}"


@pytest.mark.timeout(60)
async def test_recorded_servers_and_tools_get_the_recorded_replies(tmp_path: Path) -> None:
    """Every frame of server-storage, in the recorded order over all connections, against three nodes of ours.

    Determined and compared byte for byte: Hello (without the versions that only we speak) and Open; every
    reply of a storage port, per connection and partition in order (session information, marks, truncations,
    records, headers, lists, also those of the recovery after the server was killed, with a replica that had
    lost partition 3 by un-assignment); every reply of an admin port but metrics; that each connection gets
    exactly as many frames as recorded; and, when the first workload was over, the directories of nodes 0 and
    1 (segments, indexes, control file; only creation times differ).

    Not determined: how replies on different partitions of one connection interleave (their jobs run at the
    same time, in 0.13.2 as in ours); of the metrics, anything but what the tools of 0.13.2 read; partitions
    were assigned before the recording begins, which is done here through the engine.
    """
    async with nodes(tmp_path) as ports:

        async def phase(name: str) -> None:
            if name == "datadirs":
                for number in (0, 1):
                    await asyncio.to_thread(compare_files, tmp_path, number)

        replayer = Replayer(lambda link: Wire.open(ports[link]), phase=phase, stays_open=LAST_CONNECTIONS)
        await replayer.play(lines(SESSION))

    links = {line["conn"]: line["link"] for line in lines(SESSION) if line.get("event") == "open"}
    assert len(links) == 48
    compared = 0
    for conn, link in links.items():
        golden, ours = [frame.raw for frame in replayer.expected[conn]], replayer.received[conn]
        if link.startswith("s"):
            assert by_partition(ours) == by_partition(golden), f"connection {conn} of {link}"
        else:
            (plain, metrics), (golden_plain, golden_metrics) = without_metrics(ours), without_metrics(golden)
            assert plain == golden_plain, f"connection {conn} of {link}"
            assert len(metrics) == len(golden_metrics)
            for pair in zip(metrics, golden_metrics, strict=True):
                compare_metrics(*pair)
        compared += len(ours)
    assert compared == sum(
        not frame.from_client and bool(frame.body)
        for frame in (frame_of(line) for line in lines(SESSION) if "hex" in line)
    )
