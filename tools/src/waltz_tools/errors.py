"""Errors of the `waltz` command.

Every error that a person can cause or cure is a `ToolError`: the command prints its one line on standard
error and ends with `exit_code`; there is never a stack trace for it.
"""

from __future__ import annotations

from waltz_runtime.exit_code import ExitCode


class ToolError(Exception):
    """Base: one clear line."""

    user_error = True
    retriable = False
    exit_code = ExitCode.FAILED


class UsageError(ToolError):
    """The command line itself is wrong."""

    exit_code = ExitCode.USAGE


class ReaderGoneError(ToolError):
    """Whoever read standard output has ended."""

    def __init__(self) -> None:
        super().__init__("standard output was closed by its reader")


class OutputError(ToolError):
    """Standard output cannot be written: a full disk behind `> file`."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output cannot be written: {error.strerror or error}")


class DegradedError(ToolError):
    """The command worked, and what it found is not healthy."""

    retriable = True
    exit_code = ExitCode.DEGRADED


class LocalClusterError(ToolError):
    """A cluster of local processes cannot be started, changed or stopped."""


class DirectoryInUseError(LocalClusterError):
    """Another process runs a cluster in the same directory."""


class PortTakenError(LocalClusterError):
    """A port that belongs to the cluster's identity is used by a foreign process."""


class ProcessFailedError(LocalClusterError):
    """A process of the cluster ended or did not become ready in time."""


class JavaMissingError(LocalClusterError):
    """No Java runtime that ZooKeeper can run on."""
