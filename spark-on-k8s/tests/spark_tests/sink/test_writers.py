"""The writers' decisions around a batch: what is written again, what is refused, what is noted. Without Spark
and without a log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_tests.fake_log import FakeLog
from waltz_spark.errors import OptionError
from waltz_spark.options import STREAM_WRITE, WRITE
from waltz_spark.sink import task, writers
from waltz_spark.sink.batch_starts import Owner, Starts, StartsFolder
from waltz_spark.sink.errors import StaleBatchError, StateError
from waltz_spark.sink.options import WriteOptions
from waltz_spark.sink.task_claims import CLAIM_HEADER, TaskKey
from waltz_spark.sink.task_writer import TaskResult
from waltz_spark.sink.writers import BatchWriter, StreamWriter, TaskMessage, batch_writer, stream_writer

CLIENT = {"zookeeper.connectString": "localhost:1", "cluster.root": "/waltz", "client.ssl.enabled": "false"}


OWNER = Owner("k1", CLAIM_HEADER)
DATA = StructType([StructField("data", BinaryType())])


class FakeTask:
    """The task context of Spark: task 2 of batch 5 of query q."""

    def __init__(self) -> None:
        self.properties = {writers.QUERY_PROPERTY: "q", writers.BATCH_PROPERTY: "5"}

    def partitionId(self) -> int:  # noqa: N802
        return 2

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> FakeTask:
    fake = FakeTask()
    monkeypatch.setattr(writers, "_context", lambda: fake)
    return fake


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, context: FakeTask) -> list[tuple[TaskKey, Mapping[int, int]]]:
    """What attempts were made: key, and where the batch started."""
    found: list[tuple[TaskKey, Mapping[int, int]]] = []

    def write_task(options: object, key: TaskKey, start: Mapping[int, int], batches: object) -> TaskResult:
        found.append((key, start))
        return TaskResult(3, 0, 0, {0: 40})

    monkeypatch.setattr(task, "write_task", write_task)
    return found


def stream(directory: Path, starts: Starts, **options: str) -> StreamWriter:
    given = {**CLIENT, "checkpointLocation": str(directory), **options}
    return StreamWriter(WriteOptions.load(given, STREAM_WRITE), starts)


def batch(starts: Starts, **options: str) -> BatchWriter:
    return BatchWriter(WriteOptions.load({**CLIENT, **options}, WRITE), "w", starts)


def test_a_batch_that_spark_repeats_is_looked_for_in_the_log_whatever_the_notes_say(
    tmp_path: Path, written: list[Any]
) -> None:
    """A checkpoint that lost its last batch (a restored copy) may plan that batch with other rows than those
    in the log."""
    stream(tmp_path, Starts({0: 1}, {5: {0: 20}, 6: {0: 30}})).write(iter(()))
    assert written == [(TaskKey("q", 5, 2), {0: 20})]


def test_a_checkpoint_that_was_set_back_further_is_refused(tmp_path: Path, written: list[Any]) -> None:
    notes = {5: {0: 20}, 6: {0: 30}, 7: {0: 40}}
    with pytest.raises(StaleBatchError, match="batch 5 was to be written, but batch 6 is complete"):
        stream(tmp_path, Starts({0: 1}, notes)).write(iter(()))
    assert written == []


def test_a_complete_batch_is_noted_once_with_the_farthest_mark(tmp_path: Path) -> None:
    folder = StartsFolder(str(tmp_path / "waltz-sink"), OWNER)
    starts = folder.note_first({0: 1, 1: 7})
    messages = [TaskMessage(3, 0, 0, {0: 40}), None, TaskMessage(1, 0, 0, {0: 38})]
    for more in (messages, [TaskMessage(0, 3, 0, {0: 99})]):
        stream(tmp_path, starts).commit(more, 0)
    noted = folder.read()
    assert noted is not None
    assert noted.batches == {1: {0: 40, 1: 7}}


def test_a_batch_write_of_a_name_that_is_complete_adds_nothing(written: list[Any]) -> None:
    done = Starts({0: 1}, {1: {0: 9}})
    assert batch(done, writeId="w", stateLocation="/s").write(iter(())) == TaskMessage(0, 0, 0, {})
    assert written == []
    assert batch(Starts({0: 1}), writeId="w", stateLocation="/s").write(iter(())).written == 3


def test_rows_without_claims_are_not_written_by_speculative_copies(
    context: FakeTask, written: list[Any]
) -> None:
    context.properties[writers.SPECULATION] = "true"
    with pytest.raises(OptionError, match=r"at-least-once and spark\.speculation"):
        batch(Starts({}), delivery="at-least-once").write(iter(()))
    assert batch(Starts({})).write(iter(())).written == 3
    context.properties[writers.SPECULATION] = "false"
    assert batch(Starts({}), delivery="at-least-once").write(iter(())).written == 3


# -- what the notes belong to --------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def checkpoint(tmp_path: Path) -> None:
    """Spark has begun one."""
    (tmp_path / "metadata").write_text('{"id":"q"}')


def connect(monkeypatch: pytest.MonkeyPatch, log: FakeLog) -> None:
    monkeypatch.setattr("waltz_spark.connection.lease", lambda keys: nullcontext(log))


def test_a_write_that_is_complete_in_one_cluster_is_refused_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[Any]
) -> None:
    options = {**CLIENT, "writeId": "backfill-7", "stateLocation": str(tmp_path)}
    connect(monkeypatch, FakeLog(5))
    writer = batch_writer(options, DATA, False)
    writer.commit([writer.write(iter(()))])
    assert batch_writer(options, DATA, False).write(iter(())) == TaskMessage(0, 0, 0, {})
    connect(monkeypatch, FakeLog(5, key="k2"))
    with pytest.raises(StateError, match=r"another cluster \(key k1, this one has k2\)") as error:
        batch_writer(options, DATA, False)
    assert "\n" not in str(error.value)
    assert len(written) == 1


def test_a_checkpoint_of_another_cluster_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**CLIENT, "checkpointLocation": str(tmp_path)}
    connect(monkeypatch, FakeLog(5))
    stream_writer(options, DATA, False)
    connect(monkeypatch, FakeLog(5, key="k2"))
    with pytest.raises(StateError, match="another cluster"):
        stream_writer(options, DATA, False)


@pytest.mark.parametrize("noted_by", ["first", "complete"])
def test_another_claim_header_on_an_old_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted_by: str
) -> None:
    """Claims under the earlier header would not be found, and a repeated batch written again."""
    options = {**CLIENT, "checkpointLocation": str(tmp_path)}
    connect(monkeypatch, FakeLog(5))
    writer = stream_writer(options, DATA, False)
    if noted_by == "complete":  # the first note is one of an earlier release
        (tmp_path / "waltz-sink" / "batch-first.json").write_text('{"format": 1, "start": {"0": 4}}')
        writer.commit([TaskMessage(1, 0, 0, {0: 7})], 0)
    with pytest.raises(StateError, match=rf"claimHeader = {CLAIM_HEADER}, and this run has 99") as error:
        stream_writer({**options, "claimHeader": "99"}, DATA, False)
    assert "\n" not in str(error.value)
    stream_writer({**options, "claimHeader": str(CLAIM_HEADER)}, DATA, False)


def test_notes_of_earlier_releases_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[Any]
) -> None:
    folder = tmp_path / "waltz-sink"
    folder.mkdir()
    for name, mark in (("first", 1), ("5", 20)):
        (folder / f"batch-{name}.json").write_text(json.dumps({"format": 1, "start": {"0": mark}}))
    connect(monkeypatch, FakeLog(50))
    writer = stream_writer({**CLIENT, "checkpointLocation": str(tmp_path)}, DATA, False)
    writer.commit([writer.write(iter(()))], 5)
    assert written == [(TaskKey("q", 5, 2), {0: 20})]
    note = json.loads((folder / "batch-6.json").read_text())
    assert note == {"format": 1, "cluster": "k1", "claimHeader": CLAIM_HEADER, "start": {"0": 40}}


def test_a_batch_whose_notes_are_lost_is_looked_for_in_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[Any]
) -> None:
    """The driver notes the end of the log as the first start, and does not know yet which batch comes."""
    connect(monkeypatch, FakeLog(50, 60))
    writer = stream_writer({**CLIENT, "checkpointLocation": str(tmp_path)}, DATA, False)
    writer.commit([writer.write(iter(()))], 5)
    assert written == [(TaskKey("q", 5, 2), {})]
    starts = StartsFolder(str(tmp_path / "waltz-sink"), OWNER).read()
    assert starts is not None
    assert starts.of(6) == {0: 40}  # nothing is known of partition 1: the batch may have got no rows there


def test_notes_are_not_kept_where_the_checkpoint_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A location without a scheme is in the default file system of Spark, which need not be the local one: a
    driver on another machine would not find the notes, and write a batch again."""
    connect(monkeypatch, FakeLog(50))
    here, state = tmp_path / "elsewhere", tmp_path / "state"
    line = f"{here} is no checkpoint where the driver looks for it, .* stateLocation"
    with pytest.raises(OptionError, match=line) as error:
        stream_writer({**CLIENT, "checkpointLocation": f"{here}/"}, DATA, False)
    assert "\n" not in str(error.value)
    assert not here.exists()
    given = {**CLIENT, "checkpointLocation": str(here), "stateLocation": str(state)}
    stream_writer(given, DATA, False)
    assert list(state.iterdir())


@pytest.mark.parametrize(
    ("scheme", "hint"), [("s3a", ", here s3://bucket/c/waltz-sink$"), ("dbfs", r"abfs\)$")]
)
def test_a_checkpoint_that_the_sink_cannot_reach_has_a_way_out(
    monkeypatch: pytest.MonkeyPatch, scheme: str, hint: str
) -> None:
    connect(monkeypatch, FakeLog(50))
    given = {**CLIENT, "checkpointLocation": f"{scheme}://bucket/c"}
    with pytest.raises(StateError, match=f"set the option stateLocation to .*{hint}") as error:
        stream_writer(given, DATA, False)
    assert "\n" not in str(error.value)
