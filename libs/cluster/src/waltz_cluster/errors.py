"""Errors of this package: one hierarchy; every class says whether repeating the call can help.

`user_error` marks the mistakes of a person: programs print them as one line and exit, without a stack
trace.
"""


class ClusterError(Exception):
    """Base of all errors of this package."""

    retriable: bool = False
    user_error: bool = False


class ConfigError(ClusterError):
    """A configuration file or value is wrong; the message is one line that names the key.

    `problems`: every mistake of the file, each as such a line; the message is the first of them.
    """

    user_error = True

    def __init__(self, message: str, *others: str) -> None:
        super().__init__(message)
        self.problems = (message, *others)


class ConnectError(ClusterError):
    """ZooKeeper could not be reached in time; the message is one line that names the address."""

    retriable = True
    user_error = True


class ClusterNotFoundError(ClusterError):
    """The cluster root, or its parameters, are not in ZooKeeper."""

    user_error = True


class ClusterMismatchError(ClusterError):
    """Two records of the cluster that must agree do not (for example the number of partitions)."""

    user_error = True


class SerializationError(ClusterError):
    """The bytes of a znode are not what its layout says."""


class StoreError(ClusterError):
    """Base of what a ZooKeeper operation can raise."""


class NoNodeError(StoreError):
    """The znode (or the parent of the one to create) does not exist."""


class NodeExistsError(StoreError):
    """The znode to create exists already."""


class VersionConflictError(StoreError):
    """The data version was not the expected one; nothing was written. Read again, then decide."""

    retriable = True


class NotEmptyError(StoreError):
    """The znode to delete has children."""


class NoChildrenForEphemeralsError(StoreError):
    """The parent of the znode to create is ephemeral."""


class ConnectionLostError(StoreError):
    """The connection was lost before the answer came: **the outcome of a write is unknown**.

    Nothing here ever repeats a write after this error; the caller must read before it writes again.
    """

    retriable = True


class SessionLostError(StoreError):
    """The session is over (expired or closed): its ephemeral znodes are gone or going."""

    retriable = True


class ZnodeTooLargeError(StoreError):
    """ZooKeeper takes no request of this size; it was not sent, and nothing was written."""


class AuthError(StoreError):
    """ZooKeeper refused the credentials, or they do not permit the operation."""

    user_error = True


class IdsExhaustedError(ClusterError):
    """A 32-bit id counter has reached its end."""


class InsufficientPartitionsError(ClusterError):
    """The assignment policy was asked for fewer partitions than the old assignment names."""


class NotAdoptedError(ClusterError):
    """A server did not take the partitions it was given: the error that it raised is in the log."""

    retriable = True


class ManagerClosedError(ClusterError):
    """The cluster manager was closed while the call was waiting."""
