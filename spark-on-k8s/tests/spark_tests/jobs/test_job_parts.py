"""What the jobs decide, without Spark and without a log."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from waltz_spark.errors import WaltzSparkError


@pytest.fixture
def lake() -> ModuleType:
    return importlib.import_module("lake_export")


@pytest.fixture
def fraud() -> ModuleType:
    return importlib.import_module("fraud_windows")


def test_bursts_are_found_whatever_the_batches(fraud: ModuleType) -> None:
    ids = [0, 50, 90, 99, 100, 101, 300, 310, 320]
    whole = fraud.bursts([], ids, 3, 100)
    assert whole == ([], [(0, 90), (99, 101), (300, 320)])
    for cut in range(len(ids)):
        kept, first = fraud.bursts([], ids[:cut], 3, 100)
        last, rest = fraud.bursts(kept, ids[cut:], 3, 100)
        assert (last, first + rest) == whole
        assert len(kept) < 3


def test_a_window_does_not_hold_what_is_older(fraud: ModuleType) -> None:
    assert fraud.bursts([0, 1], [101], 3, 100) == ([101], [])
    assert fraud.bursts([2, 50], [101], 3, 100) == ([], [(2, 101)])


def test_versions_are_made_once_and_whole(lake: ModuleType, tmp_path: Path) -> None:
    table = lake.Lake(str(tmp_path))
    assert table.version() == lake.Version(-1, ())
    files = (lake.DataFile(0, 0, 9, "a"), lake.DataFile(0, 10, 19, "b"), lake.DataFile(1, 5, 5, "c"))
    found = lake.Version(0, files[::-1])  # tasks end in any order
    table.publish(found)
    assert table.version() == found == lake.Version(0, files)
    assert table.version().next_ids == {0: 20, 1: 6}
    with pytest.raises(WaltzSparkError, match="another job has made version 0"):
        table.publish(lake.Version(0, files[:1]))
    with pytest.raises(WaltzSparkError, match="is not whole"):
        table.publish(lake.Version(1, (files[0], lake.DataFile(0, 11, 19, "b"))))
    with pytest.raises(WaltzSparkError, match="no version 7"):
        table.version(7)


def test_small_neighbours_are_joined(lake: ModuleType) -> None:
    files = [lake.DataFile(0, i * 10, i * 10 + 9, f"f{i}") for i in range(5)]
    files.append(lake.DataFile(1, 0, 3, "other"))
    groups = lake.to_compact(files, 25)
    assert [[file.path for file in group] for group in groups] == [["f0", "f1"], ["f2", "f3"]]
    assert lake.to_compact(files, 5) == []


def test_what_no_kept_version_needs_is_deleted(lake: ModuleType, tmp_path: Path) -> None:
    table = lake.Lake(str(tmp_path))
    for name in ("data/partition=0/a", "data/partition=0/b", "data/partition=0/left-over"):
        table.folder.create(name, b"x")
    table.publish(lake.Version(0, (lake.DataFile(0, 0, 9, "data/partition=0/a"),)))
    table.publish(lake.Version(1, (lake.DataFile(0, 0, 9, "data/partition=0/b"),)))
    assert table.vacuum(keep=2) == 1
    assert table.vacuum(keep=1) == 1
    assert table.versions() == [1]
    assert [path.name for path in (tmp_path / "data" / "partition=0").iterdir()] == ["b"]
