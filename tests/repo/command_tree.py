"""The `waltz` command as it is: every sub-command but the hidden ones, with its options, from the application
itself."""

from functools import cache

from typer.main import get_command

from waltz_tools.cli.app import app


@cache
def commands() -> dict[str, frozenset[str]]:
    """Sub-command (`storage list`) -> every name of its options (`--storage`, `-s`); arguments by their
    metavar."""
    found: dict[str, frozenset[str]] = {}
    _collect("", get_command(app), found)
    return found


def _collect(prefix: str, command: object, found: dict[str, frozenset[str]]) -> None:
    children = getattr(command, "commands", None)
    if isinstance(children, dict):
        for name, child in children.items():
            if not child.hidden:
                _collect(f"{prefix} {name}".strip(), child, found)
        return
    names: set[str] = set()
    for parameter in getattr(command, "params", ()):
        names.update([*parameter.opts, *parameter.secondary_opts])
    found[prefix] = frozenset(names)


__all__ = ["commands"]
