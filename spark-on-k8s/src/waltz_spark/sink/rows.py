"""Rows of a DataFrame as rows for the log: which columns there may be, of which types, and how they are
read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from waltz_client import LockId
from waltz_cluster.config.unknown_keys import nearest
from waltz_spark.errors import OptionError
from waltz_spark.sink.attempt import OutgoingRow
from waltz_spark.sink.errors import BadRowError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_LOCKS = ("array<string>", "array<struct<name:string,id:bigint>>", "array<struct<name:string,id:int>>")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "data": ("binary", "string"),
    "partition": ("tinyint", "smallint", "int", "bigint"),
    "header": ("tinyint", "smallint", "int"),
    "write_locks": _LOCKS,
    "read_locks": _LOCKS,
    "append_locks": _LOCKS,
    "as_of": ("bigint", "int"),
}
"""Columns that the sink takes, and their types. `data` must be there; a lock is a struct of name and id, or
a text `name:id`."""
_LOCK_COLUMNS = ("write_locks", "read_locks", "append_locks")


def check_schema(schema: StructType) -> None:
    """OptionError, one line, when a DataFrame with these columns cannot be written."""
    names = [field.name for field in schema.fields]
    if "data" not in names:
        raise OptionError(
            f"a write needs a column data (binary or string); the columns are {', '.join(names)}"
        )
    for name in names:
        if names.count(name) > 1:
            raise OptionError(
                f"column {name} occurs {names.count(name)} times: a write takes one column of each name; rename the others or leave "
                "them out"
            )
    for field in schema.fields:
        allowed = COLUMNS.get(field.name)
        if allowed is None:
            near = nearest(field.name, COLUMNS)
            hint = f"; did you mean {near}?" if near else ""
            raise OptionError(
                f"column {field.name} cannot be written (a write takes {', '.join(COLUMNS)}){hint}"
            )
        if field.dataType.simpleString() not in allowed:
            raise OptionError(
                f"column {field.name} is {field.dataType.simpleString()}; it must be {' or '.join(allowed)}"
            )
    if ("write_locks" in names or "read_locks" in names) and "as_of" not in names:
        raise OptionError(
            "columns write_locks and read_locks need a column as_of (the last transaction of the partition that the decision has "
            "taken into account): without it they would check nothing"
        )


class RowReader:
    """Rows of one task out of Arrow batches, by partition. `default`: where rows without a partition go."""

    def __init__(self, num_partitions: int, default: int) -> None:
        self._num_partitions = num_partitions
        self._default = default

    def read(self, batch: pa.RecordBatch) -> dict[int, list[OutgoingRow]]:
        """In the order of the batch. BadRowError with the first row that cannot be written."""
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        found: dict[int, list[OutgoingRow]] = {}
        if set(columns) <= {"data", "partition", "header"}:
            rows = self._plain(columns, batch.num_rows)
        else:
            rows = (
                self._row({name: values[i] for name, values in columns.items()})
                for i in range(batch.num_rows)
            )
        for partition, row in rows:
            if not 0 <= partition < self._num_partitions:
                raise BadRowError(
                    f"a row is for partition {partition}: the cluster has partitions 0 to {self._num_partitions - 1}"
                )
            found.setdefault(partition, []).append(row)
        return found

    def _plain(self, columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[tuple[int, OutgoingRow]]:
        partitions = columns.get("partition") or [None] * count
        headers = columns.get("header") or [None] * count
        for data, partition, header in zip(columns["data"], partitions, headers, strict=True):
            yield self._default if partition is None else partition, OutgoingRow(_bytes(data), header or 0)

    def _row(self, fields: Mapping[str, Any]) -> tuple[int, OutgoingRow]:
        locks = {name: _locks(name, fields.get(name)) for name in _LOCK_COLUMNS}
        checked = locks["write_locks"] or locks["read_locks"]
        as_of = fields.get("as_of")
        if checked and as_of is None:
            raise BadRowError("a row has write or read locks and no as_of: they would check nothing")
        if as_of is not None and as_of < -1:
            raise BadRowError(
                f"a row has as_of {as_of}: it is a transaction id, or -1 for an empty partition"
            )
        partition = fields.get("partition")
        row = OutgoingRow(
            _bytes(fields["data"]),
            fields.get("header") or 0,
            locks["write_locks"],
            locks["read_locks"],
            locks["append_locks"],
            as_of if checked else None,
        )
        return self._default if partition is None else partition, row


def _bytes(data: object) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise BadRowError("a row has no data (the column data is null)")


def _locks(column: str, value: Sequence[object] | None) -> tuple[LockId, ...]:
    return tuple(_lock(column, one) for one in value or ())


def _lock(column: str, value: object) -> LockId:
    if isinstance(value, dict):
        name, number = value.get("name"), value.get("id")
        if isinstance(name, str) and isinstance(number, int):
            return LockId(name, number)
    elif isinstance(value, str):
        name, colon, digits = value.rpartition(":")
        if colon and name:
            try:
                return LockId(name, int(digits))
            except ValueError:
                pass
    raise BadRowError(
        f"a row has a lock {value!r} in {column}: a lock is a name and a number, like account:7"
    )
