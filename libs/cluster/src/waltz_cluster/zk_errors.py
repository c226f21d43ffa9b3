"""kazoo's errors as ours."""

from kazoo import exceptions as zk

from waltz_cluster import errors

_ERRORS: tuple[tuple[type[Exception], type[errors.StoreError]], ...] = (
    (zk.NoNodeError, errors.NoNodeError),
    (zk.NodeExistsError, errors.NodeExistsError),
    (zk.BadVersionError, errors.VersionConflictError),
    (zk.NotEmptyError, errors.NotEmptyError),
    (zk.NoChildrenForEphemeralsError, errors.NoChildrenForEphemeralsError),
    (zk.NoAuthError, errors.AuthError),
    (zk.AuthFailedError, errors.AuthError),
    (zk.InvalidACLError, errors.AuthError),
    (zk.SessionExpiredError, errors.SessionLostError),  # "connection closed" is a kind of it
    (zk.ConnectionLoss, errors.ConnectionLostError),
    (zk.OperationTimeoutError, errors.ConnectionLostError),
)
ANSWERS = (zk.NoNodeError, zk.NodeExistsError, zk.BadVersionError, zk.NotEmptyError, zk.NoAuthError)
"""Errors that are answers of the server: they prove contact as much as a success does."""
_TEXTS: dict[type[errors.StoreError], str] = {
    errors.NoNodeError: "no such znode",
    errors.NodeExistsError: "the znode exists already",
    errors.VersionConflictError: "the znode was changed by someone else",
    errors.NotEmptyError: "the znode has children",
    errors.NoChildrenForEphemeralsError: "the parent is ephemeral",
    errors.AuthError: "ZooKeeper does not permit it (check zookeeper.auth and zookeeper.acl)",
    errors.SessionLostError: "the ZooKeeper session is over",
    errors.ConnectionLostError: "the connection to ZooKeeper was lost, the outcome is unknown",
}


def map_error(error: BaseException, what: str) -> errors.StoreError:
    """The one door for kazoo's exceptions. What is not known is treated as an unknown outcome, the careful
    reading."""
    for foreign, ours in _ERRORS:
        if isinstance(error, foreign):
            return ours(f"{what}: {_TEXTS.get(ours, '') or error or foreign.__name__}")
    return errors.ConnectionLostError(f"{what}: {type(error).__name__}: {error}")
