"""`waltz tls`: an authority and certificates for a cluster of machines, as files
(`waltz_tools.certificates`).

`cryptography` is imported by the commands themselves: nothing else of `waltz` needs it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waltz_runtime.visible import visible
from waltz_tools.cli.common import Listing, OutputFormat, OutputOption, print_line, render_listings
from waltz_tools.errors import DegradedError, ToolError, UsageError
from waltz_tools.invocation import as_started

if TYPE_CHECKING:
    from waltz_admin.authority import CertificateInfo
    from waltz_tools.certificates import CertificateFolder, Shown

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

DEFAULT_DAYS = 365.0
SOON_DAYS = 30.0
_CERTIFICATE = "NAME[=HOST,…]"

FolderArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIRECTORY", help="Where the authority and the certificates are.", show_default=False
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", "-n", help="Name of the cluster, for the authority.", show_default=False),
]
DaysOption = Annotated[float, typer.Option("--days", min=0.01, help="Lifetime of a certificate.")]


def _certificates(help_text: str, option: str) -> Any:
    return typer.Option(option, metavar=_CERTIFICATE, help=help_text, show_default=False)


@app.command("init")
def init(
    directory: FolderArgument,
    cluster: ClusterOption = None,
    server: Annotated[
        list[str] | None, _certificates("A server; may be repeated, as all of these.", "--server")
    ] = None,
    storage: Annotated[list[str] | None, _certificates("A storage node.", "--storage")] = None,
    client: Annotated[list[str] | None, _certificates("An application.", "--client")] = None,
    tools: Annotated[list[str] | None, _certificates("Somebody with the `waltz` command.", "--tools")] = None,
    days: DaysOption = DEFAULT_DAYS,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make an authority, and a folder with key, certificate and authority for each name. What is there is
    kept, so the command adds names later on."""
    with _installed():
        from waltz_tools.certificates import CertificateRole, parse_wanted
    given = {"server": server, "storage": storage, "client": client, "tools": tools}
    wanted = [
        parse_wanted(CertificateRole(role), text) for role, texts in given.items() for text in texts or ()
    ]
    names = [each.name for each in wanted]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice: each name is a folder of its own")
    folder = _folder(directory)
    known = folder.exists
    made = [*([] if known else ["the authority"]), *folder.init(cluster, wanted, days)]
    _show(folder.show(), output)
    if made:
        _say_if_shorter(folder, days)
    if output is OutputFormat.TABLE:
        print_line(f"made: {', '.join(made) or 'nothing, all of it is there'}")
        print_line(
            "Copy each folder to its machine, readable by the service's user only, and set keyStore.location and "
            f"trustStore.location to it. {directory / 'authority'} stays here: who has ca.key can join the cluster."
        )


@app.command("renew")
def renew(
    directory: FolderArgument,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Certificates; all without it.")
    ] = None,
    cluster: ClusterOption = None,
    days: DaysOption = DEFAULT_DAYS,
    new_authority: Annotated[
        bool,
        typer.Option(
            "--new-authority", help="Step 1 of 3 to replace the authority: a new one, which is trusted too."
        ),
    ] = False,
    drop_old_authority: Annotated[
        bool, typer.Option("--drop-old-authority", help="Step 3 of 3: the one before is no longer trusted.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Replace keys and certificates; the authority stays. To replace the authority without an outage: renew
    with --new-authority, copy the folders; renew, copy them; renew with --drop-old-authority, copy them."""
    if new_authority and drop_old_authority:
        raise UsageError("--new-authority and --drop-old-authority are different steps: give one of them")
    if (new_authority or drop_old_authority) and names:
        raise UsageError("another authority concerns every certificate: give no names with it")
    if cluster is not None and not new_authority:
        raise UsageError("--cluster is the name of a new authority: give it with --new-authority")
    folder = _folder(directory)
    if new_authority:
        folder.replace_authority(cluster)
        done = "The new authority is trusted alongside the one before."
        following = (
            f"copy the folders to their machines; when all have them, run `waltz tls renew {directory}`"
        )
    elif drop_old_authority:
        folder.drop_old_authority()
        done, following = "Only the present authority is trusted.", "copy the folders to their machines"
    else:
        done = f"renewed: {', '.join(folder.renew(names or (), days))}; the authority is the same."
        _say_if_shorter(folder, days)
        following = "copy these folders to their machines; processes take over what has changed on their own"
    _show(folder.show(), output)
    if output is OutputFormat.TABLE:
        print_line(f"{done} Next: {following}.")


@app.command("show")
def show(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="The directory, a folder of it, or a file with a certificate.",
            show_default=False,
        ),
    ],
    soon: Annotated[
        float, typer.Option("--days", min=0, help="What expires within these days gives exit code 3.")
    ] = SOON_DAYS,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show names and expiry. Exit code 3 when a certificate has expired, or will soon, or when the key next
    to it is not its own."""
    with _installed():
        from waltz_tools.certificates import show_files
    if (path / "tls.crt").exists():
        shown = show_files(
            [file for file in (path / "ca.crt", path / "tls.crt") if file.exists()], time.time()
        )
    elif path.is_dir():
        shown = _folder(path).show()
    else:
        shown = show_files([path], time.time())
    _show(shown, output)
    if wrong := [each for each in shown if each.problem]:
        first_wrong = wrong[0]
        step = "waltz tls renew" + (" --new-authority" if first_wrong.path.name == "ca.crt" else "")
        raise DegradedError(
            f"{len(wrong)} of {len(shown)} certificates have a key that is not theirs; "
            f"{first_wrong.path}: {first_wrong.problem}; `{step}` makes both again"
        )
    late = [each for each in shown if each.days < soon]
    if late:
        first = min(late, key=lambda each: each.days)
        raise DegradedError(f"{len(late)} of {len(shown)} certificates {_when(first, soon)}")


def _when(first: Shown, soon: float) -> str:
    if first.days < 0:
        return (
            f"expired or expire within {soon:g} days; {first.path} expired on {_date(first.info)}: renew it"
        )
    return f"expire within {soon:g} days; {first.path} does on {_date(first.info)}: renew it"


def _say_if_shorter(folder: CertificateFolder, days: float) -> None:
    left = folder.authority_days()
    if left < days - 1:
        line = (
            f"The certificates end with their authority, after {left:.0f} days instead of {days:g}: `waltz tls "
            f"renew {folder.path} --new-authority` is the first step to another one."
        )
        sys.stderr.write(visible(as_started(line)) + "\n")


def _show(shown: Sequence[Shown], output: OutputFormat) -> None:
    listing = Listing(
        "certificates",
        "certificates",
        ["Name", "Common name", "Hosts", "Expires", "Days", "Signed by", "File", "Problem"],
    )
    for each in shown:
        info = each.info
        listing.add(
            each.name, info.common_name, list(info.names), _date(info), int(each.days // 1), each.signed_by,
            str(each.path), each.problem or None,
        )  # fmt: skip
    render_listings(output, [listing])


def _date(info: CertificateInfo) -> str:
    return datetime.fromtimestamp(info.not_after, UTC).isoformat(timespec="seconds")


def _folder(path: Path) -> CertificateFolder:
    with _installed():
        from waltz_tools.certificates import CertificateFolder
    return CertificateFolder(path, time.time())


@contextlib.contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ToolError(
            f"keys and certificates are made with the package cryptography, which is not installed here ({error})"
        ) from None
