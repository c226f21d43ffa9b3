"""Columns of the log, and batches of the client as Arrow record batches that share their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from waltz_spark.blocks import columns_of_blocks
from waltz_spark.errors import OptionError, WaltzSparkError

if TYPE_CHECKING:
    from waltz_client import RangeBatch

_INT, _LONG = pa.int32(), pa.int64()


def log_schema(deserializer: str) -> StructType:
    """The columns of a read; `data` is text with the `utf8` deserializer."""
    return StructType(
        [
            StructField("partition", IntegerType()),
            StructField("transaction_id", LongType()),
            StructField("header", IntegerType()),
            StructField("data", StringType() if deserializer == "utf8" else BinaryType()),
            StructField("client_id", IntegerType()),
            StructField("generation", IntegerType()),
            StructField("sequence", IntegerType()),
            StructField("checksum", IntegerType()),
        ]
    )


def check_schema(given: StructType, deserializer: str) -> None:
    """OptionError when a user asked for other columns than there are."""
    wanted = log_schema(deserializer)
    if [(f.name, f.dataType) for f in given] != [(f.name, f.dataType) for f in wanted]:
        raise OptionError(
            f"the columns of a log are fixed ({wanted.simpleString()}): select and cast after load()"
        )


def arrow_schema(deserializer: str) -> pa.Schema:
    """The same for Arrow."""
    data = pa.string() if deserializer == "utf8" else pa.binary()
    fields = [
        ("partition", _INT), ("transaction_id", _LONG), ("header", _INT), ("data", data),
        ("client_id", _INT), ("generation", _INT), ("sequence", _INT), ("checksum", _INT),
    ]  # fmt: skip
    return pa.schema(fields)


def arrow_batch(batch: RangeBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The transactions of `batch` as one record batch. Of blocks the columns are made at once, without an
    object for each transaction; otherwise numbers and payloads are shared with `batch`."""
    count = len(batch)
    data_type = schema.field("data").type
    if batch.blocks is not None and (found := columns_of_blocks(batch.blocks)) is not None:
        if data_type != pa.binary():
            found["data"] = _text(batch, found["data"])
        return pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)
    if batch.data is None or batch.offsets is None or batch.checksums is None:
        data, checksums = pa.nulls(count, data_type), pa.nulls(count, _INT)
    else:
        buffers = [None, pa.py_buffer(batch.offsets), pa.py_buffer(batch.data)]
        data = pa.Array.from_buffers(pa.binary(), count, buffers)
        checksums = _numbers(_INT, batch.checksums)
        if data_type != pa.binary():
            data = _text(batch, data)
    columns = [
        pa.repeat(pa.scalar(batch.partition_id, _INT), count),
        _numbers(_LONG, batch.transaction_ids),
        _numbers(_INT, batch.headers),
        data,
        _numbers(_INT, batch.client_ids),
        _numbers(_INT, batch.generations),
        _numbers(_INT, batch.seq_nums),
        checksums,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _numbers(data_type: pa.DataType, values: object) -> pa.Array:
    buffer = pa.py_buffer(values)
    return pa.Array.from_buffers(data_type, buffer.size // (data_type.bit_width // 8), [None, buffer])


def _text(batch: RangeBatch, data: pa.Array) -> pa.Array:
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        for transaction_id, payload in zip(batch.transaction_ids, data.to_pylist(), strict=True):
            try:
                payload.decode()
            except UnicodeDecodeError as error:
                raise WaltzSparkError(
                    f"transaction {transaction_id} of partition {batch.partition_id} is not UTF-8 text (byte {error.start}): "
                    "read with deserializer = binary"
                ) from None
        raise
