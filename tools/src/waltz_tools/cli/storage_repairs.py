"""`waltz storage forget` and `restore-reset`: repairs that give something up, so they are asked for by
name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from waltz_admin.accept_restored import lowest_free_session
from waltz_admin.dry_run import DryRunStore
from waltz_admin.forget import Forgotten, forget_replica
from waltz_admin.keep_copy import KeptCopy, keep_copy
from waltz_cluster.cluster_params import read_params
from waltz_cluster.serializers import StoreParams
from waltz_tools import stopped_node
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    Listing,
    LostOption,
    OutputFormat,
    OutputOption,
    PartitionsOption,
    known_node,
    parse_partitions,
    render_listings,
    render_result,
    run_admin,
)
from waltz_tools.cli.confirmation import DryRunOption, YesOption, confirm
from waltz_tools.errors import UsageError

JournalOption = Annotated[
    Path | None, typer.Option(help="storage.journal.directory, if the node has its journal elsewhere.")
]


def restore_reset(
    directory: Annotated[
        Path, typer.Argument(help="Storage directory of a node that is stopped.", show_default=False)
    ],
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="Ids and ranges; all without it.")
    ] = None,
    journal: JournalOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Prepare a storage directory that was restored from a copy, before its node starts again.

    Resets what the node remembers of store sessions, so that it comes back as a replica that has to catch up
    and never votes with a log that is older than it claims. That is right while a majority of the replicas
    still has what it had. Where a majority is restored nobody is left to catch up with: start those nodes as
    they are, and reset none. Where its journal or waltz-witness is lost no
    copy can be trusted, so all partitions are reset: --partition is refused.
    """
    chosen = None if partition is None else parse_partitions(partition)
    would = stopped_node.resettable(directory, chosen, journal)
    if dry_run:
        names = ",".join(map(str, would)) or "none"
        line = f"would reset partitions {names} of {directory}"
        render_result(output, line, dry_run=True, directory=directory, reset=would)
        return
    confirm(
        f"{directory} forgets its store sessions: its copies have no vote until they have caught up with a majority that "
        "was not restored. If a majority of the replicas is restored from copies, do not reset: start their nodes as they are",
        yes,
    )
    done = stopped_node.restore_reset(directory, chosen, journal)
    text = ",".join(map(str, done)) or "none"
    render_result(
        output, f"reset partitions {text} of {directory}; start the node now", directory=directory, reset=done
    )


def forget(
    config: ConfigOption,
    partition: PartitionsOption,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage", "-s", help="host:port of the lost node's storage port.", show_default=False
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="host:port of the node whose copies are kept as they are, in place of --storage: all others are given up.",
            show_default=False,
        ),
    ] = None,
    lost: LostOption = None,
    accept: Annotated[
        bool, typer.Option("--accept-data-loss", help="Required: acknowledged transactions may be lost.")
    ] = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Give up a replica whose disk is lost for good, when recovery cannot decide without it.

    With --keep all replicas but one are given up: where none is left that holds what it should, as after
    restore-reset of every copy. What that node holds becomes the log. Every storage node must answer, or be
    named with --lost, and no copy that was not set back may hold more.
    """
    chosen = parse_partitions(partition)
    if (storage is None) == (keep is None):
        raise UsageError("pass --storage with the node to give up, or --keep with the only one that is kept")
    if keep is None and lost:
        raise UsageError("--lost belongs to --keep: --storage names the node that is lost")
    if not accept and not dry_run:
        held = "this replica still holds" if keep is None else "other replicas still hold"
        raise UsageError(
            f"transactions that only {held} are lost forever: pass --accept-data-loss if that is acceptable"
        )
    if keep is not None:
        _keep(config, keep, chosen, lost or [], dry_run, output)
    elif storage is not None:
        _give_up(config, storage, chosen, dry_run, output)


def _give_up(config: Path, storage: str, chosen: Sequence[int], dry_run: bool, output: OutputFormat) -> None:
    async def work(c: Context) -> tuple[str, Forgotten]:
        store = DryRunStore(c.store) if dry_run else c.store
        node = await known_node(c, storage)
        return node, await forget_replica(store, c.root, node, chosen, tls=c.tls)

    node, done = run_admin(config, work)
    text = ",".join(map(str, done.forgotten)) or "none"
    line = (
        f"would forget {node} in partitions {text}"
        if dry_run
        else f"{node} is forgotten in partitions {text}"
    )
    if done.well:
        line += f"; it is well in {','.join(map(str, done.well))} and kept there"
    if done.unknown:
        line += f"; the metadata of {','.join(map(str, done.unknown))} does not name it"
    if done.others:
        line += f"; also incomplete there: {', '.join(done.others)}"
    render_result(
        output,
        line,
        node=node,
        forgotten=list(done.forgotten),
        kept=list(done.well),
        unknown=list(done.unknown),
        others=list(done.others),
        dry_run=dry_run,
    )


def _keep(
    config: Path, keep: str, chosen: Sequence[int], lost: Sequence[str], dry_run: bool, output: OutputFormat
) -> None:
    async def work(c: Context) -> list[KeptCopy]:
        node = await known_node(c, keep)
        gone = [await known_node(c, one) for one in lost]
        return await keep_copy(c.store, c.root, node, chosen, tls=c.tls, lost=gone, dry_run=dry_run)

    listing = Listing(
        "partitions",
        "would be kept" if dry_run else "kept",
        ["Partition", "Node", "Node session", "Last record", "What becomes of it"],
    )
    for one in run_admin(config, work):
        if one.already:
            listing.add(
                one.partition_id,
                one.node,
                one.session_id,
                one.last_transaction,
                f"left as it is: {one.already}",
            )
            continue
        for node in sorted({*one.copies, *one.replicas}, key=lambda name: (name != one.node, name)):
            copy = one.copies.get(node)
            becomes = "kept: it is the log now" if node == one.node else "given up, and filled from it"
            listing.add(
                one.partition_id,
                node,
                None if copy is None else copy.session_id,
                None if copy is None else copy.max_transaction_id,
                becomes if copy is not None else "given up: it has no copy, or is lost",
            )
    render_listings(output, [listing])


def lower_fence(
    config: ConfigOption,
    directory: Annotated[
        Path, typer.Argument(help="Storage directory of a node that is stopped.", show_default=False)
    ],
    partition: PartitionsOption,
    journal: JournalOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Lower session fences that were raised to where no session comes.

    Each is set to the session after the last that ZooKeeper gave out and that any node completed, so every
    session that ever was stays fenced off: both are asked again right before a fence is written, since
    sessions are given out while the question is open. All other replicas must answer, and the directory must
    be one of the cluster of the configuration. What the journal of a killed node holds is brought into its
    files first; --dry-run names `waltz disk settle` for that, and changes nothing.
    """
    chosen = parse_partitions(partition)

    async def work(c: Context) -> tuple[StoreParams, dict[int, int], dict[int, int]]:
        _, params = await read_params(c.store, c.root)
        found = {
            p: stopped_node.fence_of(directory, p, params, journal, replay=not dry_run)[0] for p in chosen
        }
        return params, found, {p: await lowest_free_session(c.store, c.root, p, tls=c.tls) for p in chosen}

    params, found, to = run_admin(config, work)
    lowered = [p for p in chosen if found[p] > to[p]]

    async def write(c: Context) -> None:
        for number in list(lowered):
            to[number] = max(to[number], await lowest_free_session(c.store, c.root, number, tls=c.tls))
            if found[number] > to[number]:
                stopped_node.lower_fence(directory, number, to[number], params, journal)
            else:
                lowered.remove(number)

    if lowered and not dry_run:
        confirm(f"the fences of partitions {','.join(map(str, lowered))} in {directory} are lowered", yes)
        run_admin(config, write)
    said = [f"partition {p}: {found[p]} to {to[p]}" for p in lowered] or ["no fence is too high"]
    line = f"{'would lower' if dry_run else 'lowered'} {'; '.join(said)}" if lowered else said[0]
    fences = {str(p): to[p] for p in lowered}
    render_result(output, line, directory=directory, lowered=fences, dry_run=dry_run)
