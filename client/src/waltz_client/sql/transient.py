"""Which database errors are worth another attempt. Pure."""

from __future__ import annotations

import sqlalchemy as sa

_SQLITE_TRANSIENT = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN")
_SQLSTATE_TRANSIENT = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03", "57P05"})
"""Serialization failure, deadlock, lock not available; shutdown, crash, starting up, idle session ended."""
_SQLSTATE_CLASSES = ("08", "53")
"""Connection, insufficient resources."""
_MYSQL_NO_SAVEPOINT = 1305


def is_transient(error: BaseException | None) -> bool:
    """Whether the same work may succeed when it is tried again: a lost connection, a deadlock, a failed
    serialization, a busy or full disk. An error that was raised *from* such an error counts as well. Anything
    else (a constraint, a missing table, a bug) would only fail again."""
    while error is not None:
        if isinstance(error, sa.exc.DBAPIError):
            return _of_database(error)
        if isinstance(error, sa.exc.TimeoutError):  # no connection of the pool was free
            return True
        error = error.__cause__
    return False


def _of_database(error: sa.exc.DBAPIError) -> bool:
    if error.connection_invalidated:
        return True
    original = error.orig
    sqlite_name = getattr(original, "sqlite_errorname", None)
    if isinstance(sqlite_name, str):
        return sqlite_name.startswith(_SQLITE_TRANSIENT)
    if type(original).__module__.startswith("sqlite3"):  # raised by the module itself, without a result code
        return False
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    if isinstance(state, str):
        return state in _SQLSTATE_TRANSIENT or state.startswith(_SQLSTATE_CLASSES)
    if original is not None and original.args[:1] == (_MYSQL_NO_SAVEPOINT,):  # without a state, but an answer
        return False
    # Without a state the database did not answer: the connection could not be made, or broke.
    return isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError))
