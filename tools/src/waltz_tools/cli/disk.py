"""`waltz disk`: what is in the files of a storage node. Reads only: nothing is locked, cut or repaired; but
for `settle`, which is for the directory of a node that is stopped.

A node may be running meanwhile; the end of its newest segment may then move between two looks.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waltz_protocol.types import Record
from waltz_tools.cli.common import (
    Listing,
    OutputFormat,
    OutputOption,
    parse_single_partition,
    parse_truth,
    print_json,
    print_line,
    render_listings,
    render_result,
)
from waltz_tools.cli.hexdump import hex_dump
from waltz_tools.cli.progress import progress
from waltz_tools.errors import DegradedError, ToolError, UsageError
from waltz_tools.stopped_node import settle_directory

if TYPE_CHECKING:
    from waltz_storage.engine.segment_view import SegmentView

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

MAX_SHOWN_FAILURES = 100
CONTROL_FILE_NAME = "waltz-storage.ctl"
SETTLE = "once the node is stopped, `waltz disk settle` brings it there:"

SegmentArgument = Annotated[
    Path, typer.Argument(metavar="FILE.seg", help="Data file of a segment.", show_default=False)
]
TransactionOption = Annotated[
    int | None, typer.Option("--transaction", "-t", min=0, help="One transaction id.", show_default=False)
]


def _view(path: Path) -> SegmentView:
    from waltz_storage.engine.segment_view import view_segment  # installed where storage nodes are

    return view_segment(str(path))


def _expect(view: SegmentView, transaction: int, end: int) -> None:
    """ToolError of one line unless the segment holds the transaction; `end` is the id after its last
    one."""
    first = view.header.first_txid
    if not first <= transaction < end:
        holds = f"it holds {first} to {end - 1}" if end > first else "it holds none"
        raise ToolError(f"{view.path} has no whole record of transaction {transaction}: {holds}")


@app.command("dump-control-file")
def dump_control_file(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=f"The control file, {CONTROL_FILE_NAME}, or its directory.",
            show_default=False,
        ),
    ],
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="One partition; all without it.")
    ] = None,
    assigned: Annotated[
        str | None,
        typer.Option("--assigned", "-a", help="true or false: only those that are assigned, or are not."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show cluster key, partition count and, per partition, session, marks and flags. Exit code 3 when an
    entry is damaged."""
    from waltz_storage.engine.inspect import inspect_control_file
    from waltz_storage.engine.journal.directory import RELEASING_VERSION, RESETTING_VERSION

    directory = path if path.is_dir() else path.parent
    if not path.is_dir() and path.name != CONTROL_FILE_NAME:
        raise UsageError(f"{path} is no control file: its name must be {CONTROL_FILE_NAME}")
    header, entries = inspect_control_file(str(directory))
    chosen = None if partition is None else parse_single_partition(partition)
    wanted = None if assigned is None else parse_truth("--assigned", assigned)
    if chosen is not None and chosen >= len(entries):
        raise UsageError(f"there is no partition {chosen}: the file has {len(entries)}")
    listing = Listing(
        "partitions",
        f"cluster key {header.cluster_key}, {header.num_partitions} partitions, made {_time(header.created_ms)}",
        [
            "Partition",
            "Session",
            "Low-water mark",
            "Local low-water mark",
            "Assigned",
            "Available",
            "Problem",
        ],
    )
    damaged = 0
    for partition_id, entry in enumerate(entries):
        if chosen not in (None, partition_id):
            continue
        if isinstance(entry, str):
            listing.add(partition_id, None, None, None, None, None, entry)
            damaged += 1
        elif wanted in (None, entry.assigned):
            listing.add(
                partition_id, entry.session_id, entry.low_water_mark, entry.local_low_water_mark,
                entry.assigned, entry.available, None,
            )  # fmt: skip
    render_listings(output, [listing])
    if header.version == RESETTING_VERSION and output is OutputFormat.TABLE:
        print_line(f"a reset did not end: run `waltz storage restore-reset {directory}` again")
    elif header.version == RELEASING_VERSION and output is OutputFormat.TABLE:
        print_line(
            "the files lack nothing, and the node's journal is still to be released: once the node is stopped, "
            f"`waltz disk settle {directory}` does that"
        )
    elif header.version and output is OutputFormat.TABLE:
        print_line(f"the files may lack what is in the node's journal: {SETTLE} {directory}")
    if damaged:
        raise DegradedError(f"{damaged} entries of {directory / CONTROL_FILE_NAME} are damaged")


@app.command("settle")
def settle(
    directory: Annotated[
        Path, typer.Argument(help="Storage directory of a node that is stopped.", show_default=False)
    ],
    journal: Annotated[
        Path | None,
        typer.Option(help="storage.journal.directory, if the node has its journal elsewhere."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Bring the directory of a node that was killed to where an orderly stop leaves it, so that release
    0.13.2 can open it: what its journal holds is brought into the files, and every assigned copy is opened
    and closed. A node of this release does so itself when it starts. Run it as the node's user. Exit code 3
    when copies are damaged, or files of one were missing: put missing directories back before."""
    found = settle_directory(directory, journal)
    text = (
        f"{found.changes} changes of the journal are in the files now"
        if found.changes
        else "nothing was left in a journal"
    )
    render_result(
        output,
        f"{text}; copies that were opened and closed in order: {len(found.closed)}",
        directory=str(directory),
        changes=found.changes,
        lacking=list(found.lacking),
        closed=list(found.closed),
        damaged={str(partition_id): reason for partition_id, reason in found.damaged.items()},
    )
    problems = [reason for partition_id, reason in found.damaged.items() if partition_id not in found.lacking]
    if found.lacking:
        problems.append(
            f"files of partition {', '.join(map(str, found.lacking))} were missing, so changes of them could not be made; a node "
            "refuses these copies as damaged, also when the files are there again, and 0.13.2 would open them as they are: let "
            "its peers refill them before"
        )
    if problems:
        raise DegradedError("; ".join(problems))


@app.command("dump-segment")
def dump_segment(
    path: SegmentArgument,
    metadata: Annotated[bool, typer.Option("--metadata", "-m", help="Show the header.")] = False,
    record: Annotated[bool, typer.Option("--record", "-r", help="Show the records.")] = False,
    transaction: TransactionOption = None,
    deserializer: Annotated[
        str | None,
        typer.Option(
            "--deserializer",
            "-d",
            help="module:function that makes text of the bytes of a record.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show header and records of one segment. Exit code 3 when the file continues after its last valid
    record."""
    if not metadata and not record:
        raise UsageError("pass what to show: --metadata, --record or both")
    from waltz_storage.engine.segment_view import segment_records

    text = None if deserializer is None else _load(deserializer)
    view = _view(path)
    if metadata:
        head = view.header
        render_result(
            output,
            f"cluster key {head.cluster_key}, partition {head.partition_id}, first transaction {head.first_txid}, "
            f"{len(view.offsets)} records, {view.file_bytes} bytes, made {_time(head.created_ms)}",
            cluster_key=str(head.cluster_key),
            partition=head.partition_id,
            first_transaction=head.first_txid,
            records=len(view.offsets),
            bytes=view.file_bytes,
            created_ms=head.created_ms,
        )
    if record:
        first = view.header.first_txid if transaction is None else transaction
        if transaction is not None:
            _expect(view, transaction, view.next_txid)
        for each in segment_records(view, first, None if transaction is None else 1):
            _show_record(output, each, None if text is None else _text(text, each))
    if view.end < view.file_bytes:
        raise DegradedError(
            f"{path}: transaction {view.next_txid} is broken or torn at byte {view.end} of {view.file_bytes}"
        )


@app.command("verify-segment")
def verify_segment_(
    path: SegmentArgument,
    transaction: Annotated[
        int | None, typer.Option("--transaction", "-t", min=0, help="Begin there.", show_default=False)
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check that the index leads to each transaction, and all checksums. Exit code 3 when not."""
    from waltz_storage.engine.segment_view import verify_segment

    view = _view(path)
    if transaction is not None:
        _expect(view, transaction, max(view.next_txid, view.header.first_txid + len(view.index or ())))
    problems = verify_segment(view, transaction)
    listing = Listing("failures", f"{len(view.offsets)} whole records, {len(problems)} failures", ["Failure"])
    for problem in problems[:MAX_SHOWN_FAILURES]:
        listing.add(problem)
    render_listings(output, [listing])
    if problems:
        raise DegradedError(
            f"{path}: {problems[0]}" + (f", and {len(problems) - 1} more" if problems[1:] else "")
        )


@app.command("segment-statistic")
def segment_statistic(path: SegmentArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the number of records, and the longest, shortest, mean and median data, in bytes."""
    from waltz_storage.engine.segment_view import data_lengths

    lengths = data_lengths(_view(path))
    facts: dict[str, object] = {"records": len(lengths)}
    if lengths:
        facts |= {
            "max": max(lengths),
            "min": min(lengths),
            "mean": round(statistics.fmean(lengths), 2),
            "median": statistics.median(lengths),
        }
    render_result(output, ", ".join(f"{name} {value}" for name, value in facts.items()), **facts)


@app.command("check")
def check(
    directory: Annotated[Path, typer.Argument(help="Storage directory of a node.", show_default=False)],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Read every record of every partition in a storage directory. Exit code 3 when something is wrong."""
    from waltz_storage.engine.inspect import inspect_directory

    with progress(f"reading {directory}") as advance:
        report = inspect_directory(str(directory), progress=advance)
    listing = Listing(
        "segments",
        f"{directory}: cluster key {report.header.cluster_key}",
        ["Partition", "Segment", "First transaction", "Records", "Bytes", "Indexed", "Problem"],
    )
    for partition in report.partitions:
        for segment in partition.segments:
            listing.add(
                partition.partition_id, Path(segment.path).name, segment.first_txid, segment.records,
                segment.file_bytes, segment.index_entries, segment.problem,
            )  # fmt: skip
        if partition.problem is not None:
            listing.add(partition.partition_id, None, None, None, None, None, partition.problem)
    render_listings(output, [listing])
    if report.problems:
        raise DegradedError(f"{len(report.problems)} problems: {report.problems[0]}")


def _text(deserialize: Callable[[bytes], object], record: Record) -> str:
    """What the caller's function makes of the payload; ToolError of one line when it cannot."""
    try:
        return str(deserialize(record.data))
    except Exception as error:
        raise ToolError(
            f"the deserializer failed at transaction {record.transaction_id}: {type(error).__name__}: {error}"
        ) from error


def _show_record(output: OutputFormat, record: Record, text: str | None) -> None:
    req_id = record.req_id
    if output is OutputFormat.JSON:
        facts: dict[str, object] = {
            "transaction": record.transaction_id,
            "req_id": list(req_id),
            "header": record.header,
            "checksum": record.checksum,
        }
        facts |= {"data": text} if text is not None else {"data_hex": record.data.hex()}
        print_json(facts)
        return
    print_line(
        f"transaction {record.transaction_id}  client {req_id.client_id}  generation {req_id.generation}  "
        f"sequence {req_id.seq_num}  header {record.header}  checksum {record.checksum & 0xFFFFFFFF:08x}  "
        f"{len(record.data)} bytes"
    )
    for line in [text] if text is not None else hex_dump(record.data):
        print_line("  " + line)


def _load(name: str) -> Callable[[bytes], object]:
    module, colon, attribute = name.partition(":")
    try:
        if not colon:
            raise ValueError("write module:function")
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"the deserializer {name!r} cannot be loaded: {error}") from None
    if isinstance(found, type):
        found = found().deserialize if hasattr(found, "deserialize") else found
    if not callable(found):
        raise UsageError(f"the deserializer {name!r} is not a function")
    return found  # type: ignore[no-any-return]


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"at {milliseconds} ms"
