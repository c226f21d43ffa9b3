"""What ends an attempt at writing, or a write. Each message is one line."""

from __future__ import annotations

from waltz_spark.errors import WaltzSparkError


class SupersededError(WaltzSparkError):
    """Another attempt at the same task (a speculative copy, or one of a restarted driver) has claimed it."""


class StaleBatchError(WaltzSparkError):
    """A later batch of the query is being written already: this attempt is a left-over."""


class NotRepeatableError(WaltzSparkError):
    """The query gave other rows than in an earlier attempt."""

    user_error = True


class RowConflictError(WaltzSparkError):
    """User locks of rows were touched after their view, and the option `onConflict` is `fail`."""

    user_error = True


class BadRowError(WaltzSparkError):
    """A row that cannot be written: no data, a partition that does not exist, locks without a view."""

    user_error = True


class WriteFailedError(WaltzSparkError):
    """The log did not take the rows in time."""

    retriable = True


class StateError(WaltzSparkError):
    """The place that remembers where batches started cannot be used."""

    user_error = True
