"""The log as a table of Parquet files, as of a vector of transactions: `lake_export.py --help`.

A lake is a folder with data files and manifests::

    data/partition=3/0-49999-JOB.parquet     transactions 0 to 49,999 of partition 3
    manifests/00000007.json                  version 7: every file of the table, up to where each partition is exported,
                                             and the key of the cluster whose log it is

A version is its manifest: it is made in one step, after its files, and only by one job (a second one at the
same time finds the number taken and fails). Readers take the newest manifest, or an older one, and see a
consistent table: exactly the transactions up to its vector. Exporting is idempotent: a job exports what the
newest version lacks up to `--as-of`, so the same job again does nothing, and one that died half-way leaves
files that no manifest names. `--compact` makes few large files out of many small ones, as a new version;
`--vacuum` deletes files and manifests that only versions older than the last `--keep` need.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.functions import col

from waltz_spark.batch import option_named
from waltz_spark.connection import lease
from waltz_spark.errors import OptionError, WaltzSparkError
from waltz_spark.folder import Folder
from waltz_spark.job import log_options, parser, run, session
from waltz_spark.offsets import Position, chosen_partitions
from waltz_spark.options import BATCH, ReadOptions, position

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_MANIFESTS = "manifests"
_FILES_SCHEMA = "path STRING, partition INT, first BIGINT, last BIGINT"


class LakeError(WaltzSparkError):
    """The lake cannot be written as asked."""

    user_error = True


@dataclass(frozen=True, order=True)
class DataFile:
    """A Parquet file with the transactions `first` to `last` of a partition, all of them, in order."""

    partition: int
    first: int
    last: int
    path: str

    @property
    def count(self) -> int:
        """Transactions in it."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Version:
    """A consistent state of the table. `files` are sorted. `next_ids`: per partition, the first
    transaction that is not in it. `cluster`: the key of the cluster; None where the manifest does not say it,
    as those of earlier releases."""

    number: int
    files: tuple[DataFile, ...]
    cluster: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", tuple(sorted(self.files)))

    @property
    def next_ids(self) -> dict[int, int]:
        """Also the vector that the version is the state as of."""
        ends: dict[int, int] = {}
        for file in self.files:
            ends[file.partition] = max(ends.get(file.partition, 0), file.last + 1)
        return ends

    def check(self) -> None:
        """Every partition is there from its first exported transaction on, each transaction in one file.
        LakeError."""
        last: dict[int, int] = {}
        for file in self.files:
            if file.partition in last and file.first != last[file.partition] + 1:
                raise LakeError(
                    f"version {self.number} is not whole: {file.path} does not follow {last[file.partition]}"
                )
            last[file.partition] = file.last


class Lake:
    """The folder; see the module."""

    def __init__(self, location: str) -> None:
        self.folder = Folder(location)
        self._manifests = Folder(f"{location.rstrip('/')}/{_MANIFESTS}")

    def versions(self) -> list[int]:
        """Numbers of the versions there are, ascending."""
        return [int(name[:-5]) for name in self._manifests.names() if name.endswith(".json")]

    def version(self, number: int | None = None) -> Version:
        """A version, the newest without a number; an empty one when there is none yet."""
        known = self.versions()
        if number is None:
            number = known[-1] if known else -1
        if number == -1:
            return Version(-1, ())
        if number not in known:
            raise LakeError(
                f"the lake has no version {number}: it has {known[0] if known else 'none'} to {known[-1] if known else 'none'}"
            )
        content = json.loads(self._manifests.read(_manifest(number)))
        files = tuple(DataFile(**file) for file in content["files"])
        return Version(number, files, content.get("cluster"))

    def publish(self, version: Version) -> None:
        """Make a version; LakeError when another job has made one of this number."""
        version.check()
        as_of = {str(partition): next_id for partition, next_id in sorted(version.next_ids.items())}
        content = {
            "format": 1,
            "cluster": version.cluster,
            "nextTransactions": as_of,
            "files": [asdict(file) for file in version.files],
        }
        if not self._manifests.create(_manifest(version.number), json.dumps(content, indent=1).encode()):
            raise LakeError(
                f"another job has made version {version.number} of the lake at the same time: run this one again"
            )

    def read(self, spark: SparkSession, number: int | None = None) -> DataFrame:
        """The table as of a version."""
        version = self.version(number)
        if not version.files:
            raise LakeError("the lake is empty")
        return spark.read.parquet(*(self.folder.uri(file.path) for file in version.files))

    def deserializer(self, version: Version) -> str | None:
        """The option that its files were read with; None without files."""
        from pyarrow import parquet, types

        if not version.files:
            return None
        path = self.folder.full_path(version.files[0].path)
        schema = parquet.read_schema(path, filesystem=self.folder.file_system)
        return "utf8" if types.is_string(schema.field("data").type) else "binary"

    def vacuum(self, keep: int) -> int:
        """Delete versions but the last `keep`, and data files that none of those has; how many files. Not
        while a job is writing."""
        kept = [self.version(number) for number in self.versions()[-keep:]]
        needed = {file.path for version in kept for file in version.files}
        for number in self.versions()[:-keep]:
            self._manifests.delete(_manifest(number))
        deleted = 0
        for name in Folder(f"{self.folder.location.rstrip('/')}/data").names():
            partition = f"data/{name}"
            for file in Folder(f"{self.folder.location.rstrip('/')}/{partition}").names():
                if f"{partition}/{file}" not in needed:
                    self.folder.delete(f"{partition}/{file}")
                    deleted += 1
        return deleted


def _manifest(number: int) -> str:
    return f"{number:08d}.json"


# -- export --------------------------------------------------------------------------------------------------


def export(
    spark: SparkSession, options: Mapping[str, str], lake: Lake, as_of: Position, rows_per_file: int
) -> Version:
    """Bring the lake up to `as_of` (partition to the first transaction that is not wanted; `latest`: all
    that is committed now). LakeError when it has transactions of another cluster, or of another form."""
    reading = {key: value for key, value in options.items() if not key.lower().endswith("ingtransactions")}
    wanted = ReadOptions.load(reading, BATCH)
    if wanted.headers is not None or not wanted.include_data:
        raise OptionError(
            "a lake has every transaction of the log, with its payload: remove the options headers and includeData, and select when you "
            "read the lake"
        )
    base = lake.version()
    cluster, partitions = _read_partitions(wanted)
    if base.cluster not in (None, cluster):
        raise LakeError(
            f"the lake has the log of another cluster (key {base.cluster}, this one has {cluster}): give each cluster a lake of its own"
        )
    if wanted.client.leaves_cluster_open:
        reading["client.clusterKey"] = cluster
    if base.files:
        form = lake.deserializer(base)
        if form != wanted.deserializer:
            raise LakeError(f"the lake was exported with deserializer = {form}: export it with that option")
        # -2: a partition without a file yet is read from its beginning.
        starts = {str(partition): base.next_ids.get(partition, -2) for partition in partitions}
        reading["startingTransactions"] = json.dumps(starts)
    if isinstance(as_of, Mapping):
        reading["endingTransactions"] = json.dumps({str(p): mark for p, mark in as_of.items()})
    log = spark.read.format("waltz").options(**reading, maxTransactionsPerPartition=str(rows_per_file)).load()
    if isinstance(as_of, Mapping):
        log = log.where(col("partition").isin(list(as_of)))
    written = log.mapInArrow(
        _writer(lake.folder.location, uuid4().hex[:8], rows_per_file), _FILES_SCHEMA
    ).collect()
    if not written:
        return base
    version = Version(
        base.number + 1,
        (*base.files, *(DataFile(r["partition"], r["first"], r["last"], r["path"]) for r in written)),
        cluster,
    )
    lake.publish(version)
    return version


def _read_partitions(wanted: ReadOptions) -> tuple[str, tuple[int, ...]]:
    """The key of the cluster, and its partitions or those of the option `partitions`: a start must be named
    for each, and for no other."""
    with lease(wanted.client) as connection, option_named("partitions"):
        cluster = connection.identity
        return cluster.key, chosen_partitions(wanted.partitions, cluster.num_partitions)


def _writer(
    location: str, job: str, rows_per_file: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Writes what a task gets (transactions of partitions, each in order) into files; gives a row per
    file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        folder = Folder(location)
        pending: list[pa.RecordBatch] = []
        for batch in _by_partition(batches):
            previous = pending[-1] if pending else None
            full = sum(one.num_rows for one in pending) >= rows_per_file
            if previous is not None and (full or _key(previous) != _key(batch)):
                yield _write_file(folder, job, pyarrow.Table.from_batches(pending))
                pending = []
            pending.append(batch)
        if pending:
            yield _write_file(folder, job, pyarrow.Table.from_batches(pending))

    return write


def _by_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of one partition each."""
    for batch in batches:
        partitions = batch.column("partition").to_pylist()
        start = 0
        for i in range(1, len(partitions) + 1):
            if i == len(partitions) or partitions[i] != partitions[start]:
                yield batch.slice(start, i - start)
                start = i


def _key(batch: pa.RecordBatch) -> Any:
    return batch.column("partition")[0].as_py()


def _write_file(folder: Folder, job: str, table: pa.Table) -> pa.RecordBatch:
    """One file, complete or not there; the row that reports it. A repeated task writes the same name with
    the same content."""
    import pyarrow
    from pyarrow import parquet

    partition = table.column("partition")[0].as_py()
    ids = table.column("transaction_id")
    first, last = ids[0].as_py(), ids[-1].as_py()
    if last - first + 1 != table.num_rows:
        raise LakeError(
            f"partition {partition} has {table.num_rows} transactions between {first} and {last}: some are missing"
        )
    path = f"data/partition={partition}/{first}-{last}-{job}.parquet"
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    folder.create(path, sink.getvalue().to_pybytes())
    row = {"path": [path], "partition": [partition], "first": [first], "last": [last]}
    types = [
        ("path", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("first", pyarrow.int64()),
        ("last", pyarrow.int64()),
    ]
    return pyarrow.RecordBatch.from_pydict(row, pyarrow.schema(types))


# -- compaction ----------------------------------------------------------------------------------------------


def to_compact(files: Sequence[DataFile], rows_per_file: int) -> list[tuple[DataFile, ...]]:
    """Neighbours that together make a file of at most that many rows; each group has two files at least."""
    groups: list[list[DataFile]] = []
    for file in sorted(files):
        group = groups[-1] if groups else []
        fits = (
            group
            and group[-1].partition == file.partition
            and sum(f.count for f in group) + file.count <= rows_per_file
        )
        if fits:
            group.append(file)
        else:
            groups.append([file])
    return [tuple(group) for group in groups if len(group) > 1]


def compact(spark: SparkSession, lake: Lake, rows_per_file: int) -> Version:
    """A new version with fewer files and the same rows; the same version when there is nothing to gain."""
    base = lake.version()
    groups = to_compact(base.files, rows_per_file)
    if not groups:
        return base
    location, job = lake.folder.location, uuid4().hex[:8]
    paths = [([file.path for file in group],) for group in groups]

    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        from pyarrow import parquet

        folder = Folder(location)
        for batch in batches:
            for group in batch.column("paths").to_pylist():
                tables = [
                    parquet.read_table(folder.full_path(p), filesystem=folder.file_system, partitioning=None)
                    for p in group
                ]
                yield _write_file(folder, job, pyarrow.concat_tables(tables))

    frame = spark.createDataFrame(paths, "paths ARRAY<STRING>").repartition(len(groups))
    written = frame.mapInArrow(merge, _FILES_SCHEMA).collect()
    old = {file for group in groups for file in group}
    new = [DataFile(r["partition"], r["first"], r["last"], r["path"]) for r in written]
    kept = (file for file in base.files if file not in old)
    version = Version(base.number + 1, (*kept, *new), base.cluster)
    if version.next_ids != base.next_ids or sum(f.count for f in version.files) != sum(
        f.count for f in base.files
    ):
        raise LakeError("compaction has lost rows: nothing was changed")
    lake.publish(version)
    return version


# -- command line --------------------------------------------------------------------------------------------


def _as_of(text: str) -> Position:
    try:
        return position(text)
    except ValueError as error:
        raise OptionError(f"--as-of {text}: {error}") from None


def main(arguments: Sequence[str] | None) -> None:
    """The command line."""
    flags = parser("Export the log to a lake of Parquet files.")
    flags.add_argument("--lake", required=True, help="folder of the lake, a path or URI")
    flags.add_argument(
        "--as-of",
        default="latest",
        help="latest, or JSON: partition to the first transaction that is left out",
    )
    flags.add_argument("--rows-per-file", type=int, default=500_000, help="largest file")
    flags.add_argument("--compact", action="store_true", help="afterwards, join small files")
    flags.add_argument("--vacuum", action="store_true", help="afterwards, delete what old versions needed")
    flags.add_argument("--keep", type=int, default=10, help="with --vacuum: versions that are kept")
    given = flags.parse_args(arguments)
    if given.keep < 1 or given.rows_per_file < 1:
        flags.error("--keep and --rows-per-file are at least 1")
    options = log_options(given)
    spark = session("lake-export")
    lake = Lake(given.lake)
    version = export(spark, options, lake, _as_of(given.as_of), given.rows_per_file)
    if given.compact:
        version = compact(spark, lake, given.rows_per_file)
    deleted = lake.vacuum(given.keep) if given.vacuum else 0
    rows = sum(file.count for file in version.files)
    sys.stdout.write(
        f"version {version.number}: {rows} transactions in {len(version.files)} files; {deleted} files deleted\n"
    )
    spark.stop()


if __name__ == "__main__":
    run(main)
