"""Directories that release 0.13.2 wrote are opened as they are, and the same records make the same bytes."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.interop.recordings import GOLDEN, transactions
from waltz_protocol.records import pack_record, unpack_record
from waltz_protocol.types import Record, ReqId
from waltz_storage.engine.layout import ControlHeader, wire_to_disk
from waltz_storage.engine.partition import EngineSettings
from waltz_storage.engine.storage_manager import StorageManager

NODES = ("node0", "node1")
THRESHOLDS = {"node0": 1_000_000_000, "node1": 1024}
CONTROL_FILE = "waltz-storage.ctl"


def record_of(listed: dict[str, Any]) -> Record:
    req_id = listed["reqId"]
    checksum = listed["crc32"]
    return Record(
        listed["txId"],
        ReqId(req_id["clientId"], req_id["generation"], req_id["partitionId"], req_id["seqNum"]),
        listed["header"],
        bytes.fromhex(listed["data"]),
        checksum - (1 << 32) if checksum >= 1 << 31 else checksum,
    )


def records_of(partition_id: int) -> list[Record]:
    return [record_of(listed) for listed in transactions() if listed["partition"] == partition_id]


def header_of(node: str) -> ControlHeader:
    return ControlHeader.from_bytes((GOLDEN / "storage" / node / CONTROL_FILE).read_bytes()[:128])


def open_manager(directory: Path, node: str, now_ms: int = 0) -> StorageManager:
    header = header_of(node)
    return StorageManager.open(
        str(directory),
        cluster_key=header.cluster_key,
        num_partitions=header.num_partitions,
        now_ms=lambda: now_ms,
        settings=EngineSettings(segment_threshold_bytes=THRESHOLDS[node]),
    )


def listing(directory: Path) -> dict[str, bytes]:
    suffixes = {".seg", ".idx", ".ctl"}
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.suffix in suffixes
    }


@pytest.mark.parametrize("node", NODES)
def test_an_old_directory_opens_and_gives_back_every_transaction(node: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "storage" / node, tmp_path / "data")
    before = listing(tmp_path / "data")
    manager = open_manager(tmp_path / "data", node)
    assert not manager.problems()
    for partition_id in range(4):
        expected = records_of(partition_id)
        partition = manager.get(partition_id)
        assert partition.max_txid == expected[-1].transaction_id
        raw = [
            bytes(record)
            for first in range(0, len(expected), 5)
            for record in partition.read(first, 5, 1 << 20)
        ]
        assert [unpack_record(record)[0] for record in raw] == expected
    manager.close()
    # Opening changes nothing that the old release would read.
    assert listing(tmp_path / "data") == before


@pytest.mark.parametrize("node", NODES)
def test_safety_f5_the_same_records_make_the_same_files(node: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    manager = open_manager(data, node)
    for partition_id in range(4):
        partition = manager.assign(partition_id)
        for record in records_of(partition_id):
            results = partition.append([wire_to_disk(pack_record(record), 0, 1).batch])
            assert results == [None]
    manager.close()
    for name, ours in listing(data).items():
        golden = (GOLDEN / "storage" / node / name).read_bytes()
        if name.endswith(".ctl"):
            continue
        # Bytes 4 to 12 are the creation time.
        assert ours[:4] + ours[12:] == golden[:4] + golden[12:], name
    assert {name for name in listing(data) if not name.endswith(".ctl")} == {
        name for name in listing(GOLDEN / "storage" / node) if not name.endswith(".ctl")
    }


@pytest.mark.parametrize("node", NODES)
def test_control_entries_are_those_of_the_old_release(node: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "storage" / node, tmp_path / "data")
    manager = open_manager(tmp_path / "data", node)
    for partition_id in range(4):
        info = manager.control.info(partition_id)
        assert (info.available, info.assigned) == (True, True)
        assert info.session_id >= 0
        assert info.local_low_water_mark <= info.low_water_mark
    manager.close()
