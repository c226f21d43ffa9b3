"""Columns, options, the notes next to the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from waltz_client import LockId
from waltz_spark.errors import OptionError
from waltz_spark.options import STREAM_WRITE, WRITE
from waltz_spark.sink.attempt import OnConflict, OutgoingRow
from waltz_spark.sink.batch_starts import Owner, Starts, StartsFolder
from waltz_spark.sink.errors import BadRowError, StaleBatchError, StateError
from waltz_spark.sink.options import WriteOptions
from waltz_spark.sink.read_back import Header, Survey
from waltz_spark.sink.rows import RowReader, check_schema
from waltz_spark.sink.task_claims import CLAIM_HEADER, Claim, TaskKey
from waltz_spark.sink.writers import batch_writer

CLIENT = {"zookeeper.connectString": "localhost:1", "cluster.root": "/waltz", "client.ssl.enabled": "false"}
KEY = TaskKey("query", 1, 0)
OWNER = Owner("cluster-key", CLAIM_HEADER)


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


TEXTS = ArrayType(StringType())
LOCKS = ArrayType(StructType([StructField("name", StringType()), StructField("id", LongType())]))


# -- columns -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"header": IntegerType()}, "a write needs a column data"),
        ({"data": IntegerType()}, "column data is int; it must be binary or string"),
        (
            {"data": BinaryType(), "heder": IntegerType()},
            "column heder cannot be written .*; did you mean header",
        ),
        ({"data": BinaryType(), "write_locks": TEXTS}, "need a column as_of"),
        ({"data": BinaryType(), "as_of": StringType()}, "column as_of is string"),
        ({"data": BinaryType(), "append_locks": StringType()}, "column append_locks is string"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns: dict[str, DataType], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_schema(schema(**columns))


def test_a_column_that_occurs_twice_is_refused() -> None:
    """Nobody could say which of the two a row is written from."""
    twice = StructType([StructField(name, BinaryType()) for name in ("data", "data")])
    with pytest.raises(OptionError, match="column data occurs 2 times") as error:
        check_schema(twice)
    assert "\n" not in str(error.value)


def test_all_columns_in_either_form() -> None:
    whole = IntegerType()
    locks = {"write_locks": TEXTS, "read_locks": LOCKS, "append_locks": TEXTS}
    check_schema(schema(data=StringType(), partition=whole, header=whole, as_of=LongType(), **locks))
    batch = pa.RecordBatch.from_pydict(
        {
            "data": ["a", "b"],
            "partition": [1, None],
            "header": [7, None],
            "as_of": [41, None],
            "write_locks": [["account:7", "a:b:-1"], None],
            "read_locks": [[{"name": "book", "id": 2}], []],
            "append_locks": [None, ["total:1"]],
        }
    )
    rows = RowReader(4, 3).read(batch)
    assert rows == {
        1: [OutgoingRow(b"a", 7, (LockId("account", 7), LockId("a:b", -1)), (LockId("book", 2),), (), 41)],
        3: [OutgoingRow(b"b", 0, (), (), (LockId("total", 1),), None)],
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": None}, "has no data"),
        ({"partition": 4}, "partitions 0 to 3"),
        ({"write_locks": ["account:7"]}, "no as_of"),
        ({"write_locks": ["account"], "as_of": 1}, "a lock is a name and a number"),
        ({"write_locks": ["a:1"], "as_of": -2}, "as_of -2"),
    ],
)
def test_rows_that_cannot_be_written(fields: dict[str, object], message: str) -> None:
    row: dict[str, object] = {"data": b"x", "partition": 0, "write_locks": None, "as_of": None, **fields}
    batch = pa.RecordBatch.from_pydict({name: [value] for name, value in row.items()})
    with pytest.raises(BadRowError, match=message):
        RowReader(4, 0).read(batch)


# -- options -------------------------------------------------------------------------------------------------


def test_defaults_of_a_stream() -> None:
    options = WriteOptions.load({**CLIENT, "checkpointLocation": "/c/"}, STREAM_WRITE)
    assert options.state_location == "/c/waltz-sink"
    assert options.settings.on_conflict is OnConflict.FAIL
    assert options.client.settings().max_concurrent_transactions == 1024
    given = {**CLIENT, "checkpointLocation": "/c", "client.maxConcurrentTransactions": "7"}
    assert WriteOptions.load(given, STREAM_WRITE).client.settings().max_concurrent_transactions == 7


@pytest.mark.parametrize(
    ("use", "given", "message"),
    [
        (STREAM_WRITE, {}, "needs the option checkpointLocation"),
        (STREAM_WRITE, {"checkpointLocation": "/c", "delivery": "twice"}, "exactly-once or at-least-once"),
        (WRITE, {"onconflit": "fail"}, "did you mean onConflict"),
        (WRITE, {"onConflict": "ask"}, "fail or skip or retry"),
        (WRITE, {"onConflict": "retry", "delivery": "at-least-once"}, "needs delivery = exactly-once"),
        (WRITE, {"stateLocation": "/s"}, "needs writeId"),
        (WRITE, {"claimHeader": "0x1ffffffff"}, "signed 32-bit"),
        (STREAM_WRITE, {"checkpointLocation": "/c", "writeId": "x"}, "has no meaning for a streaming write"),
    ],
)
def test_mistakes_in_options_are_one_line(use: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        WriteOptions.load({**CLIENT, **given}, use)
    assert "\n" not in str(error.value)


def test_a_log_is_not_overwritten() -> None:
    with pytest.raises(OptionError, match="cannot be overwritten"):
        batch_writer({**CLIENT, "delivery": "at-least-once"}, schema(data=BinaryType()), True)


# -- notes ---------------------------------------------------------------------------------------------------


def test_notes_are_made_once_and_say_where_a_batch_starts(tmp_path: Path) -> None:
    folder = StartsFolder(str(tmp_path / "checkpoint" / "waltz-sink"), OWNER)
    assert folder.read() is None
    assert folder.note_first({0: 4, 1: -1}) == Starts({0: 4, 1: -1}, owner=OWNER)
    assert folder.note_first({0: 99, 1: 99}) == Starts({0: 4, 1: -1}, owner=OWNER)
    folder.note_complete(0, {0: 10, 1: 3})
    folder.note_complete(0, {0: 77, 1: 77})
    starts = StartsFolder((tmp_path / "checkpoint" / "waltz-sink").as_uri(), OWNER).read()
    assert starts is not None
    assert [starts.of(batch) for batch in (0, 1, 5)] == [{0: 4, 1: -1}, {0: 10, 1: 3}, {0: 10, 1: 3}]
    assert [starts.is_complete(batch) for batch in (0, 1)] == [True, False]


@pytest.mark.parametrize("name", ["a#b", "a?b", "100%", "a%20b", "a b", "ü"])
def test_notes_are_in_the_checkpoint_that_spark_makes_of_a_uri(tmp_path: Path, name: str) -> None:
    """To Spark what follows the scheme is a path, each character of it for itself."""
    for checkpoint in (f"file://{tmp_path}/{name}", f"{tmp_path}/{name}"):
        options = WriteOptions.load({**CLIENT, "checkpointLocation": checkpoint}, STREAM_WRITE)
        assert options.state_location is not None
        folder = StartsFolder(options.state_location, OWNER)
        folder.note_first({0: 4})
        assert folder.has_sibling("waltz-sink")
        assert [path.parent for path in tmp_path.rglob("waltz-sink")] == [tmp_path / name]


def test_a_uri_whose_end_would_be_cut_off_is_refused(tmp_path: Path) -> None:
    for end, written in (("#b", "%23"), ("?b", "%3F")):
        with pytest.raises(
            StateError, match=f"is no part of the path in a URI, where it is written {written}"
        ):
            StartsFolder(f"file://{tmp_path}/a{end}/c", OWNER)
    folder = StartsFolder(f"file://{tmp_path}/a%23b", OWNER)
    folder.note_first({0: 4})
    assert [path.name for path in tmp_path.iterdir()] == ["a#b"]


def test_old_notes_go_and_a_checkpoint_that_was_set_back_is_told(tmp_path: Path) -> None:
    folder = StartsFolder(str(tmp_path), OWNER)
    folder.note_first({0: -1})
    for batch in range(30):
        folder.note_complete(batch, {0: batch})
    assert len(list(tmp_path.iterdir())) == 11
    starts = folder.read()
    assert starts is not None
    with pytest.raises(StaleBatchError, match="the checkpoint was rolled back"):
        starts.check_place(3)
    starts.check_place(29)


def test_a_place_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot be used"):
        StartsFolder(str(tmp_path / "file" / "x"), OWNER).note_first({0: 0})
    with pytest.raises(StateError, match="cannot be used"):
        StartsFolder("what://is/this", OWNER)


# -- reading back --------------------------------------------------------------------------------------------


def test_whose_row_is_it() -> None:
    mine, other = Claim(KEY, "a", 5), Claim(TaskKey("another", 0, 0), "b", 5)
    older = Claim(TaskKey("query", 0, 0), "c", 6)
    payloads = {1: mine.encode(), 3: other.encode(), 5: older.encode(), 7: mine.encode(), 8: b"no claim"}
    headers = [
        Header(0, 5, 0),
        Header(1, 5, CLAIM_HEADER),
        Header(2, 5, 0),
        Header(3, 5, CLAIM_HEADER),
        Header(4, 5, 0),
        Header(5, 6, CLAIM_HEADER),
        Header(6, 6, 0),
        Header(7, 9, CLAIM_HEADER),  # a copy: client 5 did not write it
        Header(8, 5, CLAIM_HEADER),
    ]
    claims, rows = Survey(KEY, (), CLAIM_HEADER).walk(headers, payloads)
    assert [seen.transaction_id for seen in claims] == [1, 5]
    assert [row.transaction_id for row in rows] == [2]


def test_a_claim_is_told_from_what_is_none() -> None:
    claim = Claim(KEY, "a", 5)
    data = claim.encode()
    assert Claim.decode(data) == claim
    others = [b"", b"[]", b"{}", b"\xff", data.replace(b'"task":0', b'"task":"x"')]
    others += [data.replace(b'"a"', b'"b"'), data.replace(b",", b", ", 1), data + b" ", data[:-1]]
    for other in others:
        assert Claim.decode(other) is None, other


HOSTILE = [
    b"[" * 100_000,
    b'{"format":"waltz-spark-claim/1","query":"q","batch":Infinity,"task":0,"attempt":"a","client":5}',
    b'{"format":"waltz-spark-claim/1","query":"q","batch":1e400,"task":0,"attempt":"a","client":5}',
    b'{"format":"waltz-spark-claim/1","query":"q","batch":%s,"task":0,"attempt":"a","client":5}'
    % (b"9" * 5000),
    b'{"format":"waltz-spark-claim/1","query":"\\ud800","batch":{},"task":null,"attempt":[],"client":5}',
    b'{"format":' + b'{"a":' * 50_000,
]


@pytest.mark.parametrize("payload", HOSTILE, ids=range(len(HOSTILE)))
def test_no_payload_under_the_header_of_claims_stops_a_write(payload: bytes) -> None:
    """Whoever writes to the log may use any header."""
    claims, rows = Survey(KEY, {5}, CLAIM_HEADER).walk([Header(0, 5, CLAIM_HEADER)], {0: payload})
    assert (claims, [row.transaction_id for row in rows]) == ([], [0])


def test_claims_of_earlier_releases_have_no_checksum_and_hold() -> None:
    """They are in logs; and an attempt of an earlier release must find ours."""
    old = b'{"format":"waltz-spark-claim/1","query":"query","batch":1,"task":0,"attempt":"a","client":5}'
    assert Claim.decode(old) == Claim(KEY, "a", 5)
    fields = json.loads(Claim(KEY, "a", 5).encode())
    assert {name: fields[name] for name in json.loads(old)} == json.loads(old)


@given(
    st.text(max_size=20),
    st.integers(0, 2**40),
    st.integers(0, 2**31),
    st.text(max_size=20),
    st.integers(0, 2**31),
)
def test_a_claim_survives_its_encoding(query: str, batch: int, task: int, attempt: str, client: int) -> None:
    claim = Claim(TaskKey(query, batch, task), attempt, client)
    assert Claim.decode(claim.encode()) == claim
