"""Errors of this package: one hierarchy. All of them are for a person to read: one clear line."""

from waltz_protocol.errors import ConnectError


class AdminError(Exception):
    """Base: the action was refused or failed; nothing was changed unless the text states it."""

    retriable: bool = False
    user_error: bool = True


class ClusterExistsError(AdminError):
    """There is a cluster at this root already."""


class ClusterTreeLostError(AdminError):
    """A cluster that once existed is not (completely) in ZooKeeper: a fault to repair, never to seed over."""


class WrongClusterNameError(AdminError):
    """The name given is not that of the cluster."""


class ClusterInUseError(AdminError):
    """Servers are registered."""


class StorageNodeError(AdminError):
    """A storage node is unknown, differs from what is recorded, or still has partitions."""


class AssignmentError(AdminError):
    """A change of assignments that makes no sense (unknown partition or node, last copy of a group)."""


class UnsafeChangeError(AdminError):
    """The replicas must not be changed now: the proof that nothing can be lost is missing. Trying later may
    help."""

    retriable = True


class AdminLockBusyError(AdminError):
    """Somebody else holds the admin lock."""

    retriable = True


class AdminLockLostError(AdminError):
    """The admin lock was lost before the change was made; nothing was written."""

    retriable = True


class UnreachableError(AdminError):
    """A process did not answer."""

    retriable = True


class OpenRefusedError(UnreachableError):
    """A storage node answered, and refused the connection: it has the key of another cluster, or another
    number of partitions."""


class TurnedAwayError(UnreachableError):
    """A process is there, and no connection to it can be made: TLS failed, or it closed the connection before
    the exchange of Hellos. It may serve others all the same."""


class RefusedError(UnreachableError):
    """A process answered, and refused: there is no doubt that it is there."""


class OfflineCopyError(AdminError):
    """An offline copy cannot start or cannot continue; what was copied so far is good and is kept."""


def no_connection(text: str, error: Exception) -> UnreachableError:
    """The error for a connection that could not be made because of `error`."""
    turned_away = isinstance(error, ConnectError) and error.turned_away
    return TurnedAwayError(text) if turned_away else UnreachableError(text)
