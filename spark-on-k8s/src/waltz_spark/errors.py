"""What the data source raises: one line for a person each, with whether trying again can help.

Spark shows the text of the innermost exception at the end of its own report, so the line is complete in
itself and starts with "waltz:".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from waltz_client import WaltzClientError
from waltz_cluster.errors import ClusterError
from waltz_protocol.errors import WaltzProtocolError


class WaltzSparkError(Exception):
    """Base of all errors of this package."""

    retriable: ClassVar[bool] = False
    user_error: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(f"waltz: {message}")


class OptionError(WaltzSparkError, ValueError):
    """An option, a schema or a combination of options that can never work."""

    user_error = True


class DataLossError(WaltzSparkError):
    """Transactions that were to be read are not in the log, or this is not the log they were in."""


class UnavailableError(WaltzSparkError):
    """The cluster, or a partition, gave nothing for too long. Running the task or the query again may
    help."""

    retriable = True


class ClusterAccessError(WaltzSparkError):
    """The cluster cannot be used: wrong address, root, credentials or certificates."""

    user_error = True


@contextmanager
def mapped() -> Iterator[None]:
    """The door for errors of the client, of ZooKeeper and of connections: each becomes one of this package's,
    with its line."""
    try:
        yield
    except (WaltzClientError, ClusterError, WaltzProtocolError) as error:
        if error.retriable:
            raise UnavailableError(str(error)) from None
        raise ClusterAccessError(str(error)) from None
