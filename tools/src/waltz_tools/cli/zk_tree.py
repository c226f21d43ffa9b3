"""`waltz zk export`, `import`, `rebuild`: a cluster's tree as a file, back into ZooKeeper, and made again
from what the storage nodes hold."""

from __future__ import annotations

import os
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from waltz_admin.rebuild_tree import ClusterGiven, NodeGiven, RebuiltTree, begun_number, rebuild_tree
from waltz_admin.tree_copy import Behind, behind, read_tree, write_tree
from waltz_admin.tree_file import MAX_FILE_BYTES, ClusterTree, decode, encode
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LostOption,
    OutputFormat,
    OutputOption,
    parse_endpoint,
    parse_group,
    parse_new_endpoint,
    parse_number,
    render_listings,
    render_result,
    run_admin,
    shown,
)
from waltz_tools.cli.confirmation import DryRunOption, YesOption, confirm
from waltz_tools.errors import ToolError, UsageError

_NUMBERS_BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
_NOT_BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
_STDOUT, _STDERR = 1, 2

FileArgument = Annotated[Path, typer.Argument(help="The file.", show_default=False)]


def add_commands(app: typer.Typer) -> None:
    """Put them below `waltz zk`."""
    app.command("export")(export)
    app.command("import")(import_)
    app.command("rebuild")(rebuild)


def export(config: ConfigOption, file: FileArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Write the cluster's records to a file, as they are at one moment; changes nothing in ZooKeeper.

    The file has no transactions and no credentials, but the cluster key. An existing file is replaced, whole,
    when the new one is on the disk; a pipe, /dev/stdout or a character device is written into. Nothing else
    is printed on a standard output that the export goes to.
    """
    tree = run_admin(config, lambda c: read_tree(c.store, c.root, _now()))
    _write(file, encode(tree))
    if _opened_already(file) == _STDOUT:
        return
    facts = {
        "file": str(file),
        "cluster": tree.cluster.name,
        "key": tree.params.cluster_key,
        "znodes": len(tree.znodes),
        "nested": list(tree.nested),
    }
    line = f"exported {tree.cluster.name}, {len(tree.znodes)} znodes, to {file}{_left_out(tree)}"
    render_result(output, line, **facts)


def import_(
    config: ConfigOption,
    file: FileArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Put an exported tree back where ZooKeeper has nothing; servers must be stopped.

    It is an older copy of ZooKeeper then: partitions of which storage nodes know more are listed first,
    report a fault, and are brought up to date by `waltz zk accept-restored`.
    """
    tree = _read(file)
    found = run_admin(config, lambda c: behind(tree, c.root, c.tls))
    if dry_run:
        render_listings(output, _import_listings(tree, found))
        return
    what = f"the tree of {tree.cluster.name}, exported at {tree.exported_at}, is put into ZooKeeper"
    confirm(what, yes, _import_listings(tree, found))
    written = run_admin(config, lambda c: write_tree(c.store, c.root, tree))
    late = sorted(found.partitions)
    facts = {
        "cluster": tree.cluster.name,
        "key": tree.params.cluster_key,
        "written": written,
        "older": late,
        "nested": list(tree.nested),
    }
    line = (
        f"imported {tree.cluster.name}"
        if written
        else f"{tree.cluster.name} is there already, exactly like this"
    )
    if late:
        ids = ",".join(map(str, late))
        line += (
            f"; its storage nodes know more of partitions {ids}: `waltz zk accept-restored -p {ids}` is next"
        )
    render_result(output, line + _left_out(tree), **facts)


def rebuild(
    config: ConfigOption,
    name: Annotated[str, typer.Option("--name", "-n", help="Name of the cluster.", show_default=False)],
    key: Annotated[
        str,
        typer.Option("--key", "-k", help="Key (UUID) that the storage nodes carry.", show_default=False),
    ],
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="Number of partitions.", show_default=False)
    ],
    copies: Annotated[
        int, typer.Option("--copies", min=1, help="Number of copies of each partition.", show_default=False)
    ],
    node: Annotated[
        list[str],
        typer.Option(
            "--node",
            help="HOST:PORT/ADMIN_PORT/GROUP of a storage node, as ZooKeeper had it; all of them, also those that are lost.",
            show_default=False,
        ),
    ],
    lost: LostOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make a lost tree again from what the storage nodes hold; servers must be stopped.

    For a cluster of which no export is left. All storage nodes must answer, or be named as lost. Then nothing
    that a quorum holds is lost: the next recovery decides among the nodes that completed the last session.
    """
    cluster_key = _key(key)
    nodes, gone = [_node(text) for text in node], [str(parse_endpoint(one)) for one in lost or ()]

    async def preview(c: Context) -> RebuiltTree:
        number = _first_number(await begun_number(c.store, c.root))
        given = ClusterGiven(name, cluster_key, partitions, copies, number)
        return await rebuild_tree(given, nodes, gone, tls=c.tls, root=c.root, at=_now())

    made = run_admin(config, preview)
    if dry_run:
        render_listings(output, _rebuild_listings(made))
        return
    confirm(f"the tree of {name} is made from what the storage nodes hold", yes, _rebuild_listings(made))
    written = run_admin(config, lambda c: write_tree(c.store, c.root, made.tree))
    line = (
        f"rebuilt {name}: {len(made.partitions)} partitions from their copies, {len(made.unused)} never used"
    )
    if not written:
        line = f"{name} is there already, exactly like this"
    facts = {
        "cluster": name,
        "rebuilt": [one.partition_id for one in made.partitions],
        "unused": list(made.unused),
    }
    render_result(output, line, written=written, **facts)


def _left_out(tree: ClusterTree) -> str:
    if not tree.nested:
        return ""
    return f"; left out: other clusters below its root, at {', '.join(tree.nested)} (export each with its own cluster.root)"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _first_number(begun: int | None) -> int:
    """Seconds since 2020: above every id that was counted up from 0 or from an earlier rebuild, as long as
    fewer than one per second were given out. `begun`: the number of a tree that is there already, which is
    taken if an earlier run can have written it."""
    now = datetime.now(UTC)
    if now < _NOT_BEFORE:
        raise ToolError(
            f"the clock of this machine shows {now:%Y-%m-%d}: ids would be given out twice; set it"
        )
    number = _number_at(now)
    return begun if begun is not None and _number_at(_NOT_BEFORE) <= begun <= number else number


def _number_at(time: datetime) -> int:
    return int((time - _NUMBERS_BEGIN).total_seconds())


def _key(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(
            f"--key is a UUID, as `waltz zk show-cluster-key`, or `waltz disk check` of a storage directory, prints it, not {text!r}"
        ) from None


def _node(text: str) -> NodeGiven:
    endpoint, _, rest = text.partition("/")
    admin_port, _, group = rest.partition("/")
    port_number, group_number = parse_number(admin_port), parse_number(group)
    if port_number is None or group_number is None:
        raise UsageError(f"--node is HOST:PORT/ADMIN_PORT/GROUP, not {shown(text)}")
    if not 0 < port_number < 65536:
        raise UsageError(f"the admin port in --node {shown(text)} is not a port (1 to 65535)")
    return NodeGiven(
        str(parse_new_endpoint(endpoint)), port_number, parse_group(f"--node {shown(text)}", group_number)
    )


def _opened_already(file: Path) -> int | None:
    """The descriptor that this name is of: what the shell has opened (`<(…)`, `>(…)`, `/dev/stdout`)."""
    if str(file.parent) in ("/dev/fd", "/proc/self/fd") and file.exists():
        return parse_number(file.name)
    return {"/dev/stdin": 0, "/dev/stdout": _STDOUT, "/dev/stderr": _STDERR}.get(str(file))


def _read(file: Path) -> ClusterTree:
    """Of a file, or of a pipe that the shell has opened; opening any other pipe would wait for a writer
    without end."""
    try:
        if _opened_already(file) in (None, _STDOUT, _STDERR) and not stat.S_ISREG(file.stat().st_mode):
            raise ToolError(f"{file} cannot be read: it is not a file")
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(f"{shown(str(file))} is not the name of a file: {error}") from None
    return decode(content)


def _write(file: Path, content: bytes) -> None:
    """To a file that is replaced, whole; into a pipe or a character device, which stay what they are."""
    try:
        descriptor = _opened_already(file)
        mode = None
        if descriptor is None and file.exists():
            mode = file.stat().st_mode
        if mode is not None and stat.S_ISDIR(mode):
            raise ToolError(f"{file} is a directory: name the file")
        if mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            descriptor = os.open(file, os.O_WRONLY | os.O_NONBLOCK)  # a pipe that nobody reads is an error
            os.set_blocking(descriptor, True)
        elif mode is not None and not stat.S_ISREG(mode):
            raise ToolError(f"{file} is no file, pipe or character device: nothing was written")
        if descriptor is None:
            _replace(file.resolve(), content)  # of a link that what it leads to
        else:
            with open(descriptor, "wb", closefd=mode is not None) as opened:
                opened.write(content)
    except OSError as error:
        raise ToolError(f"{file} cannot be written: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(f"{shown(str(file))} is not the name of a file: {error}") from None


def _replace(file: Path, content: bytes) -> None:
    """Whole or not at all, for the owner's eyes: the cluster key is in it.

    The name until it is whole is this run's own: two exports to the same file do not meet, the later one
    stays. The directory is synced: whoever reads "exported" has the file after a power loss, too.
    """
    descriptor, part = tempfile.mkstemp(prefix=".waltz-export-", suffix=".part", dir=file.parent)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(part, file)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    _sync_directory(file.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _import_listings(tree: ClusterTree, found: Behind) -> list[Listing]:
    head = Listing("tree", "The file", ["Cluster", "Key", "Partitions", "Exported at", "Znodes"])
    head.add(
        tree.cluster.name,
        tree.params.cluster_key,
        tree.params.num_partitions,
        tree.exported_at,
        len(tree.znodes),
    )
    late = Listing("older", "What it would take back", ["Partition", "Node", "Which the file does not have"])
    for partition, nodes in sorted(found.partitions.items()):
        for node, text in sorted(nodes.items()):
            late.add(partition, node, text)
    silent = Listing("silent", "Storage nodes that do not answer", ["Node", "Why"])
    for node, why in sorted(found.silent.items()):
        silent.add(node, why)
    return [head, late, silent]


def _rebuild_listings(made: RebuiltTree) -> list[Listing]:
    listing = Listing(
        "partitions",
        "would be written",
        ["Partition", "Session", "Node", "Node session", "Closing high-water mark", "Why"],
    )
    for one in made.partitions:
        for node, state in sorted(one.after.replicas.items()):
            closing: object = state.closing_high_water_mark if state.resolved else "UNRESOLVED"
            listing.add(
                one.partition_id, one.after.session_id, node, state.session_id, closing, one.reasons[node]
            )
    for number in made.unused:
        listing.add(number, None, None, None, None, "was never used, as its copies report")
    return [listing]
