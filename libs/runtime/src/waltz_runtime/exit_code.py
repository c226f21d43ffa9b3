"""The exit codes of every program of Waltz: server, storage node, operator and the `waltz` command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What an exit code means. A second SIGTERM or SIGINT ends a service at once with 128 + its number."""

    OK = 0
    """Done; a service: left in order."""
    FAILED = 1
    """One line says what is wrong and what to do: configuration, keys, ZooKeeper, a port, a refusal."""
    USAGE = 2
    """The command line is wrong."""
    DEGRADED = 3
    """The command worked, and what it found is not healthy."""
    JOURNAL = 4
    """A storage node's directory and its journal do not belong together: one of them was lost, or is
    damaged."""
    INTERNAL = 70
    """An error that was not foreseen, a defect: a service logs where; a command with WALTZ_DEBUG=1."""
    INTERRUPTED = 130
    """Ctrl-C at a command."""
