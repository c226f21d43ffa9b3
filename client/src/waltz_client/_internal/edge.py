"""The edge to the libraries below: what they raise becomes one of the client's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from waltz_client import errors
from waltz_cluster.errors import ClusterError
from waltz_protocol.errors import TlsSettingsError

_SAME_NAME: tuple[type[errors.WaltzClientError], ...] = (
    errors.AuthError,
    errors.ClusterNotFoundError,
    errors.ConfigError,
    errors.ConnectError,
    errors.ConnectionLostError,
    errors.TlsSettingsError,
)


@contextmanager
def client_errors() -> Iterator[None]:
    """Around the calls of the public API that reach ZooKeeper or read settings and keys; also a decorator of
    functions that are not coroutines."""
    try:
        yield
    except (ClusterError, TlsSettingsError) as error:
        if isinstance(error, errors.WaltzClientError):
            raise
        raise _of_client(error).with_traceback(error.__traceback__) from None


def _of_client(error: ClusterError | TlsSettingsError) -> errors.WaltzClientError:
    for kind in _SAME_NAME:
        if isinstance(error, kind.__bases__[0]):
            return kind(*getattr(error, "problems", (str(error),)))
    if error.retriable:
        return errors.ConnectionLostError(str(error))
    return (errors.ClusterNotFoundError if error.user_error else errors.ClusterDataError)(str(error))
