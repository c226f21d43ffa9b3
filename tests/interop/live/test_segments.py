"""The reader of the segment files reads what 0.13.2 recorded, and notices what is wrong. Needs no release."""

import shutil
from pathlib import Path

import pytest

from tests.interop.live.segments import SegmentError, read_partition
from tests.interop.recordings import GOLDEN, transactions


@pytest.mark.parametrize("node", ["node0", "node1"])
def test_recorded_directories_are_read_record_by_record(node: str) -> None:
    for partition in range(4):
        expected = [listed for listed in transactions() if listed["partition"] == partition]
        found = read_partition(GOLDEN / "storage" / node / str(partition))
        assert [(entry.transaction_id, entry.header, entry.data.hex()) for entry in found] == [
            (listed["txId"], listed["header"], listed["data"]) for listed in expected
        ]


def test_nothing_is_no_record(tmp_path: Path) -> None:
    assert read_partition(tmp_path / "0") == []


@pytest.mark.parametrize("where", ["changed", "cut", "segment"])
def test_what_is_wrong_is_noticed(where: str, tmp_path: Path) -> None:
    directory = tmp_path / "0"
    shutil.copytree(GOLDEN / "storage" / "node1" / "0", directory)
    first, second, *_ = sorted(directory.glob("*.seg"))
    raw = first.read_bytes()
    if where == "segment":
        second.unlink()
    else:
        first.write_bytes(raw[:-1] if where == "cut" else raw[:200] + bytes([raw[200] ^ 1]) + raw[201:])
    with pytest.raises(SegmentError):
        read_partition(directory)
