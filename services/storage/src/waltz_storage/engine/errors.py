"""What can go wrong in the engine. One hierarchy; each class says whether trying again can help.

`retriable` is about the same request on the same node. `user_error` marks mistakes of whoever starts
the node: they end the process with their one line and exit code 1 (or their own), never with a stack trace.
"""

from __future__ import annotations

from waltz_runtime.exit_code import ExitCode


class StorageError(Exception):
    """Base of all engine errors."""

    retriable = False
    user_error = False


class StorageStartError(StorageError):
    """The node cannot start on this directory; the text is one clear line for the operator."""

    user_error = True


class JournalLostError(StorageStartError):
    """A storage directory and its journal do not belong together: one of them was lost, or is damaged. The
    copies have to be given up, or what was lost put back."""

    exit_code = ExitCode.JOURNAL


class DirectoryLockedError(StorageStartError):
    """Another process holds the control file's lock."""


class WireFormatError(StorageError):
    """Bytes of a request that are no records: the connection ends."""


class RequestRefusedError(StorageError):
    """The request breaks a rule (order, marks, checksums, fence); nothing was changed."""


class NotAssignedError(RequestRefusedError):
    """The partition is unknown here or not assigned to this node."""


class DiskWriteError(StorageError):
    """A write failed (for example: disk full) and was taken back completely; it may be tried again."""

    retriable = True


class DiskFullError(DiskWriteError):
    """The disk has no room for this, or only the reserve; nothing was written. Ends on its own when there is
    room."""


class OutOfResourcesError(StorageError):
    """The process has no file descriptor or memory left for this now. No record is lost, none was added."""

    retriable = True


class PartitionFailedError(StorageError):
    """A sync failed: the partition is out of service until the node has been restarted."""


class PartitionDamagedError(StorageError):
    """Bytes that were once synced are missing or changed. Nothing was cut or repaired."""


class RecordDamagedError(PartitionDamagedError):
    """A stored record does not carry its checksum or its transaction id."""
