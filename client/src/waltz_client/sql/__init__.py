"""Exactly-once in a database: a transaction and the partition's high-water mark are applied in one database
transaction.

Give `SqlCallbacks` to a client, or let `SqlApplier` run feeds. Needs SQLAlchemy 2
(the extra `sql`) and the driver of the database. docs/applications.md shows both.

`tables` holds the two tables, `database` one database transaction, `engines` where it runs, `applier` retries
and errors, `callbacks` the client's callbacks, `blocking` the helper without an event loop, `transient`
which database errors are worth another attempt.
"""

import re

from waltz_protocol.extras import with_extra

try:
    import sqlalchemy
except ModuleNotFoundError:
    raise ImportError(f"waltz_client.sql needs SQLAlchemy 2: {with_extra('waltz-client', 'sql')}") from None
if tuple(map(int, re.findall(r"\d+", sqlalchemy.__version__)[:3])) < (2, 0, 40):
    # Older ones of 2.0 have no events of a single connection, and every `apply` would fail.
    raise ImportError(
        f"waltz_client.sql needs SQLAlchemy 2.0.40 or newer, not {sqlalchemy.__version__}: "
        + with_extra("waltz-client", "sql")
    )

from waltz_client.sql.applier import SqlApplier
from waltz_client.sql.blocking import BlockingSqlApplier
from waltz_client.sql.callbacks import SqlCallbacks
from waltz_client.sql.engines import ApplyFunction, AsyncApplyFunction
from waltz_client.sql.errors import (
    DatabaseUnavailableError,
    HighWaterMarkMovedError,
    SqlApplyError,
    SqlTableMissingError,
)
from waltz_client.sql.tables import SqlTables

__all__ = [
    "ApplyFunction",
    "AsyncApplyFunction",
    "BlockingSqlApplier",
    "DatabaseUnavailableError",
    "HighWaterMarkMovedError",
    "SqlApplier",
    "SqlApplyError",
    "SqlCallbacks",
    "SqlTableMissingError",
    "SqlTables",
]
