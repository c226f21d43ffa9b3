"""What the jobs decide, without Spark and without a log."""

from __future__ import annotations

import importlib
import json
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow
import pytest

from spark_tests.fake_log import FakeLog
from waltz_spark.errors import OptionError, WaltzSparkError
from waltz_spark.offsets import resolve
from waltz_spark.options import BATCH, STREAM_WRITE, ReadOptions
from waltz_spark.sink.options import WriteOptions

KEY, OTHER = (str(UUID(int=number)) for number in (1, 2))
"""Of clusters."""


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


class StopError(Exception):
    """The job has said what was to be seen."""


class Calls:
    """Represents Spark's readers and writers: every call returns it again. `options`: what was given."""

    def __init__(self) -> None:
        self.options_given: list[dict[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self

    def options(self, **given: str) -> Calls:
        self.options_given.append(given)
        return self

    def load(self) -> Calls:
        raise StopError


class Loading(Calls):
    def load(self) -> Calls:
        return self


def data_file(lake: ModuleType, table: Any) -> Any:
    """Transactions 0 to 9 of partition 0, exported."""
    columns = {"partition": [0] * 10, "transaction_id": list(range(10)), "data": [b"x"] * 10}
    written = lake._write_file(table.folder, "job", pyarrow.table(columns)).to_pylist()[0]
    return lake.DataFile(0, 0, 9, written["path"])


def starts_of_the_next_export(
    lake: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch, ends: dict[int, int], **options: str
) -> dict[int, int]:
    """Resolved as a batch read does it: the mapping must name exactly what is read."""
    table = lake.Lake(str(folder))
    table.publish(lake.Version(0, (data_file(lake, table),)))
    monkeypatch.setattr(lake, "lease", lambda keys: nullcontext(FakeLog(15, 3, 0, key=KEY)))
    calls = Calls()
    given = {"servers": "server-1:55180", **options}
    with pytest.raises(StopError):
        lake.export(SimpleNamespace(read=calls), given, table, "latest", 1000)
    return resolve(ReadOptions.load(calls.options_given[-1], BATCH).starting, ends)


def test_partitions_without_a_file_are_exported_from_their_beginning(
    lake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The highest ones too: they may have been empty at the first export."""
    found = starts_of_the_next_export(lake, tmp_path, monkeypatch, {0: 15, 1: 3, 2: 0})
    assert found == {0: 10, 1: 0, 2: 0}


def test_an_export_of_some_partitions_names_those(
    lake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = starts_of_the_next_export(lake, tmp_path, monkeypatch, {1: 3, 2: 0}, partitions="1,2")
    assert found == {1: 0, 2: 0}


def export(
    lake: ModuleType, table: Any, monkeypatch: pytest.MonkeyPatch, key: str = KEY, **options: str
) -> Calls:
    monkeypatch.setattr(lake, "lease", lambda keys: nullcontext(FakeLog(15, 3, key=key)))
    calls = Calls()
    with pytest.raises(StopError):
        lake.export(
            SimpleNamespace(read=calls), {"servers": "server-1:55180", **options}, table, "latest", 1000
        )
    return calls


def test_a_lake_has_one_cluster(lake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.Lake(str(tmp_path))
    file = data_file(lake, table)
    table.publish(lake.Version(0, (file,), KEY))
    assert table.version().cluster == KEY
    calls = export(lake, table, monkeypatch)
    assert calls.options_given[0]["client.clusterKey"] == KEY  # whichever server of the list answers
    with pytest.raises(lake.LakeError, match=rf"another cluster \(key {KEY}, this one has {OTHER}\)"):
        export(lake, table, monkeypatch, OTHER)
    earlier = tmp_path / "manifests" / "00000000.json"
    content = json.loads(earlier.read_text())
    del content["cluster"]
    earlier.write_text(json.dumps(content))
    assert table.version().cluster is None  # of an earlier release: whoever exports next adopts it
    export(lake, table, monkeypatch, OTHER)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"includeData": "false"}, "with its payload: remove the options headers and includeData"),
        ({"HEADERS": "1"}, "with its payload: remove the options headers and includeData"),
        ({"deserializer": "utf8"}, "exported with deserializer = binary"),
    ],
)
def test_a_lake_has_every_payload_in_one_form(
    lake: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], line: str
) -> None:
    table = lake.Lake(str(tmp_path))
    table.publish(lake.Version(0, (data_file(lake, table),), KEY))
    with pytest.raises(WaltzSparkError, match=line):
        export(lake, table, monkeypatch, **options)


def test_a_partition_for_alerts_that_does_not_exist_is_refused_before_the_query(
    fraud: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fraud, "lease", lambda keys: nullcontext(FakeLog(0, 0)))
    options = {"servers": "server-1:55180"}
    with pytest.raises(
        OptionError, match="--alerts-partition: there is no partition 99, the cluster has 0 to 1"
    ):
        fraud.run_stream(
            SimpleNamespace(),
            options,
            str(tmp_path),
            limit=5,
            window=100,
            alerts_partition=99,
            until_end=True,
            seconds=1.0,
        )


@pytest.mark.parametrize(
    "options",
    [
        {"servers": "server-1:55180", "client.ssl.enabled": "false"},
        {"zookeeper.connectString": "zk:2181", "cluster.root": "/ledger"},
    ],
)
def test_alerts_are_written_to_the_cluster_that_is_read(
    fraud: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    reads, writes = Loading(), Calls()
    monkeypatch.setattr(fraud, "lease", lambda keys: nullcontext(FakeLog(0)))
    monkeypatch.setattr(
        fraud, "alerts", lambda *_: SimpleNamespace(select=lambda *_: SimpleNamespace(writeStream=writes))
    )
    monkeypatch.setattr(fraud, "lit", lambda _: Calls())
    monkeypatch.setattr(fraud, "run_query", lambda *_, **__: None)
    fraud.run_stream(
        SimpleNamespace(readStream=reads),
        {**options, "partitions": "0"},
        str(tmp_path),
        limit=5,
        window=100,
        alerts_partition=0,
        until_end=True,
        seconds=1.0,
    )
    assert reads.options_given[0]["partitions"] == "0"
    assert writes.options_given == [options]
    WriteOptions.load({**writes.options_given[0], "checkpointLocation": str(tmp_path)}, STREAM_WRITE)
