"""What the data source raises: one line for a person each, with whether trying again can help.

Spark runs the source in worker processes and hands on what they raise as text: the name of the class and the
message, after a stack trace of the worker unless that process has `SPARK_HIDE_TRACEBACK` set. Our messages
are complete in themselves and start with "waltz:", so `in_one_line` sets it for them; any other exception
keeps its stack trace. `reason` finds the message in what Spark raises in the driver program.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from waltz_client import WaltzClientError
from waltz_cluster.errors import ClusterError
from waltz_protocol.errors import WaltzProtocolError

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
_LINE = re.compile(r"\bwaltz: .*")


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


@contextmanager
def in_one_line() -> Iterator[None]:
    """Around everything that Spark calls: an error of this package that leaves it is shown by Spark without a
    stack trace. The process ends with such an error, so the setting outlives nothing."""
    try:
        yield
    except WaltzSparkError:
        if _is_worker():
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def _is_worker() -> bool:
    """Whether Spark started this process, and not a person or a test."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return str(getattr(main, "name", "")).startswith("pyspark.")


def reason(error: BaseException) -> str | None:
    """The line of this package, "waltz: ...", in what Spark raised in the driver program; None when the error
    is not one of this package's."""
    found = _LINE.findall(str(error))
    return found[-1].strip() if found else None
