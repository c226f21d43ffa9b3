"""`waltz storage replace`: one node is replaced with another, in one command that can be run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from waltz_admin.replace import NodeReplacement, ReplaceEvent, ReplaceOptions, ReplaceResult, Report
from waltz_tools.cli.common import (
    ConfigOption,
    Context,
    OutputFormat,
    OutputOption,
    parse_endpoint,
    parse_new_endpoint,
    print_json,
    print_line,
    render_result,
    run_admin,
)
from waltz_tools.cli.confirmation import DryRunOption, YesOption, confirm
from waltz_tools.cli.progress import progress
from waltz_tools.errors import DegradedError

DropOption = Annotated[
    bool,
    typer.Option(
        "--drop-group-copy", help="Also when the new node holds a copy for another group: one replica less."
    ),
]


def replace(
    config: ConfigOption,
    old: Annotated[
        str, typer.Option("--old", help="host:port of the old node, its storage port.", show_default=False)
    ],
    new: Annotated[str, typer.Option("--new", help="host:port of the running new node.", show_default=False)],
    new_admin_port: Annotated[
        int, typer.Option("--new-admin-port", min=1, max=65535, help="Its admin port.", show_default=False)
    ],
    group: Annotated[
        int | None,
        typer.Option("--group", "-g", help="Group of the new node; that of the old one without it."),
    ] = None,
    at_once: Annotated[
        int, typer.Option("--at-once", min=1, help="Partitions that are moved together.")
    ] = 16,
    copy: Annotated[
        bool, typer.Option("--copy/--no-copy", help="Copy node to node first; else the servers fill it.")
    ] = True,
    delete: Annotated[
        bool, typer.Option("--delete-storage-files", "-d", help="Delete the old node's data too.")
    ] = False,
    allow_pause: Annotated[
        bool,
        typer.Option("--allow-pause", help="Accept that writes wait until the new replica has caught up."),
    ] = False,
    drop_group_copy: DropOption = False,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout", "-t", min=1, help="Seconds for each wait.")
    ] = 3600.0,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Replace a storage node: add the new one, copy, verify, switch, remove the old one, forget it.

    Before each change it is proven that nothing can be lost. Whatever interrupts it: run the same command
    again.
    """
    before, after = str(parse_endpoint(old)), str(parse_new_endpoint(new))
    options = ReplaceOptions(
        group,
        at_once,
        copy,
        allow_pause=allow_pause,
        delete_files=delete,
        drop_group_copy=drop_group_copy,
        timeout_seconds=timeout_seconds,
    )

    def replacement(c: Context, report: Report = _silent) -> NodeReplacement:
        return NodeReplacement(
            c.store, c.root, before, after, new_admin_port, tls=c.tls, options=options, report=report
        )

    if dry_run:
        _print_plan(config, output, before, replacement)
        return
    deleted = " and what nobody needs of its data is deleted, also of partitions that are not assigned to it"
    confirm(f"{before} leaves the cluster" + (deleted if delete else ""), yes)
    result, known = _run(config, before, replacement)
    _render(output, before, after, result, known)


def _silent(event: ReplaceEvent) -> None:
    """A plan reports nothing."""


def _print_plan(
    config: Path, output: OutputFormat, before: str, replacement: Callable[[Context], NodeReplacement]
) -> None:
    async def work(c: Context) -> tuple[list[str], bool]:
        planned = replacement(c)
        return await planned.plan(), planned.old_is_known

    steps, known = run_admin(config, work)
    if output is OutputFormat.JSON:
        print_json({"dry_run": True, "old_known": known, "steps": steps})
    else:
        for line in [f"would {step}" for step in steps] + ([] if known else [_unknown(before)]):
            print_line(line)


def _run(
    config: Path, before: str, replacement: Callable[[Context, Report], NodeReplacement]
) -> tuple[ReplaceResult, bool]:
    """The result, and whether the old node was known."""
    with progress(f"replacing {before}") as advance:

        async def work(c: Context) -> tuple[ReplaceResult, bool]:
            running = replacement(c, lambda event: advance(event.done, event.total, event.text))
            return await running.run(), running.old_is_known

        return run_admin(config, work)


def _unknown(node: str) -> str:
    return f"nothing to do: {node} is not a storage node of the cluster (it was replaced already, or the name is wrong)"


def _render(output: OutputFormat, before: str, after: str, result: ReplaceResult, known: bool) -> None:
    """What was done; DegradedError when the old node keeps something."""
    line = f"{after} has replaced {before}: {len(result.moved)} partitions, {result.copied} records copied"
    if not known:
        line = _unknown(before)
    if result.left is not None:
        line += f"; the old node was not informed ({result.left}): never start it on its old directory again"
    render_result(
        output,
        line,
        old=before,
        old_known=known,
        new=after,
        moved=result.moved,
        copied=result.copied,
        not_told=result.left,
        kept={str(partition): why for partition, why in result.kept.items()},
    )
    if result.kept:
        reasons = "; ".join(f"partition {partition}: {why}" for partition, why in result.kept.items())
        raise DegradedError(
            f"{before} keeps copies that may be needed or could not be removed, and stays a storage node "
            f"({reasons}). Leave it running, "
            "see to the reason, then run the same command again"
        )
