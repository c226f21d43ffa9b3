"""Everything the client raises, in one hierarchy.

Each class says whether trying again can help (`retriable`). Errors about one append also say what became of
the transaction (`outcome`): *failed* means certainly not in the log, *unknown* means it may be there or
come to be there. Foreign errors (sockets, ZooKeeper, bytes) are mapped at the edge (`_internal/edge.py`);
a caller needs this module only.

A class that has the name of one of the libraries below is that one too, so an `except` clause with the
library's class catches it as well.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from waltz_client.committed import Committed
from waltz_cluster import errors as cluster_errors
from waltz_protocol import errors as protocol_errors
from waltz_protocol.locks import LockId


class Outcome(enum.Enum):
    """What is known about an append: committed and failed are final, unknown is the caller's to resolve."""

    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class WaltzClientError(Exception):
    """Base of all errors of this package; the message is one line for a person."""

    retriable: ClassVar[bool] = False
    user_error: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """For pickle and copy: classes whose arguments are not those of Exception are made anew without their
        `__init__`, those of applications too."""
        return _made_anew, (type(self), self.args), self.__dict__


def _made_anew(kind: type[WaltzClientError], args: tuple[object, ...]) -> WaltzClientError:
    return kind.__new__(kind, *args)


class UsageError(WaltzClientError, ValueError):
    """An argument or a call that can never work (a negative id, a duplicate partition, a missing payload)."""

    user_error = True


class PayloadError(WaltzClientError, ValueError):
    """A value that its serializer cannot write, or a payload that it cannot read; the serializer's error is
    `__cause__`."""


class ConfigError(cluster_errors.ConfigError, WaltzClientError):
    """A file or value of the settings is wrong; the message names the key."""


class TlsSettingsError(protocol_errors.TlsSettingsError, WaltzClientError):
    """Keys or certificates cannot be used; the message names the setting."""


class ConnectError(cluster_errors.ConnectError, WaltzClientError):
    """ZooKeeper could not be reached in time; the message names the address. With `servers`: none of them
    gave the directory of its cluster, a client id, or the record of a named producer; the message names each
    with the reason."""


class AuthError(cluster_errors.AuthError, WaltzClientError):
    """ZooKeeper refused the credentials (`zookeeper.auth`), or they do not permit what a client does."""


class ClusterNotFoundError(cluster_errors.ClusterNotFoundError, WaltzClientError):
    """`cluster.root` is not in ZooKeeper, or not (or not completely) the root of a cluster."""


class ConnectionLostError(cluster_errors.ConnectionLostError, WaltzClientError):
    """The session with ZooKeeper broke while the client was entered; connect again."""


class ClusterDataError(cluster_errors.StoreError, WaltzClientError):
    """What ZooKeeper has of the cluster cannot be used: a record is damaged, or all client ids were given
    out."""


class ClientClosedError(WaltzClientError):
    """The client was closed; open a new one."""


class PartitionNotFoundError(WaltzClientError, LookupError):
    """The cluster has no partition of this number."""

    user_error = True

    def __init__(self, partition_id: int, num_partitions: int) -> None:
        super().__init__(
            f"partition {partition_id} does not exist: the cluster has partitions 0 to {num_partitions - 1}"
        )
        self.partition_id = partition_id


class PartitionInactiveError(WaltzClientError):
    """The partition is not among those chosen with `set_partitions`."""

    def __init__(self, partition_id: int) -> None:
        super().__init__(
            f"partition {partition_id} is not active in this client: choose it with set_partitions"
        )
        self.partition_id = partition_id


class PartitionUnavailableError(WaltzClientError):
    """The partition was not served (no owner, no connection, no answer to the mount) within the time
    allowed."""

    retriable = True


class ClientAheadError(WaltzClientError):
    """The application has applied more than the log holds: the log lost data, or this is another cluster's
    state."""

    def __init__(
        self, partition_id: int, client_high_water_mark: int, detail: str = "the server's log ends before it"
    ) -> None:
        super().__init__(
            f"client is ahead of the log: partition {partition_id} was read up to transaction {client_high_water_mark}, {detail}"
        )
        self.partition_id = partition_id
        self.client_high_water_mark = client_high_water_mark


class StopApplyingError(WaltzClientError):
    """Raise it (or a subclass) from `apply_transaction` or `client_high_water_mark` to stop a partition: it
    is reported once, the callback is not called again, and other partitions continue. Contexts submitted to
    the partition end with it."""


class RequestDeadlineError(WaltzClientError):
    """A request (data, high-water mark, administration) got no answer in time."""

    retriable = True


class TransactionNotFoundError(WaltzClientError, LookupError):
    """The transaction id is above the high-water mark of the partition (it may be committed later)."""

    retriable = True


class WindowFullError(WaltzClientError):
    """`append_nowait` found the window of concurrent transactions full; nothing was sent."""

    retriable = True


class ServerRequestError(WaltzClientError):
    """A server answered an administrative request with a refusal, or the connection broke under it."""

    retriable = True


class AppendError(WaltzClientError):
    """Base of the errors of one append; `outcome` says whether the transaction can be in the log."""

    outcome: Outcome = Outcome.FAILED

    def __init__(self, message: str, *, partition_id: int) -> None:
        super().__init__(message)
        self.partition_id = partition_id


class LockConflictError(AppendError):
    """A lock was touched above the caller's view, or another one that shares its slots in the server's table:
    read up to `conflicting_high_water_mark` and decide again."""

    retriable = True

    def __init__(
        self,
        *,
        partition_id: int,
        conflicting_high_water_mark: int,
        lock: LockId | None = None,
        winner: int | None = None,
    ) -> None:
        """`lock`: one that was touched, and `winner`: the client id of who touched it; None when the server
        does not say so (without `client.answeredAppends`), or does not know it any longer."""
        named = "a lock" if lock is None else f"the lock {lock.name!r} {lock.id}"
        who = "" if winner is None else f" (of client {winner})"
        super().__init__(
            f"lock conflict in partition {partition_id}: {named} was touched by transaction "
            f"{conflicting_high_water_mark}{who} or earlier, after the view of this append",
            partition_id=partition_id,
        )
        self.conflicting_high_water_mark = conflicting_high_water_mark
        self.lock = lock
        self.winner = winner


class ViewAheadError(AppendError):
    """`as_of` is beyond the end of the partition's log: nobody can have seen that much of it, and a check
    of locks against such a view would find nothing. Mostly it is the id of another partition. Nothing is in
    the log."""

    retriable = True
    """A server that has just lost the partition may be behind what its successor has shown somebody else."""

    def __init__(self, *, partition_id: int, as_of: int, high_water_mark: int, detail: str = "") -> None:
        super().__init__(
            f"as_of {as_of} is beyond the log of partition {partition_id}, whose high-water mark is {high_water_mark}{detail}",
            partition_id=partition_id,
        )
        self.as_of = as_of
        self.high_water_mark = high_water_mark


class AppendFailedError(AppendError):
    """Certainly not in the log: dropped by a server (moved, recovering, stale generation) or never sent."""

    retriable = True


class ServerOverloadedError(AppendFailedError):
    """The server has too many appends to the partition waiting; try again after `retry_after_ms`. It
    is raised with `client.answeredAppends` only."""

    def __init__(self, *, partition_id: int, retry_after_ms: int) -> None:
        super().__init__(
            f"append to partition {partition_id} was refused: its server has too many appends waiting "
            f"(to be tried again after {retry_after_ms} ms)",
            partition_id=partition_id,
        )
        self.retry_after_ms = retry_after_ms


class NoQuorumError(AppendFailedError):
    """The server could not reach enough storage nodes for the partition; the message says who is missing.
    It is raised with `client.answeredAppends` only."""

    def __init__(self, *, partition_id: int, detail: str) -> None:
        super().__init__(
            f"append to partition {partition_id} was refused: {detail or 'too few storage nodes'}",
            partition_id=partition_id,
        )


class DeadlineExceededError(AppendError):
    """The deadline passed before the append was sent: certainly not in the log."""

    retriable = True


class OutcomeUnknownError(AppendError):
    """Sent, but the deadline, a cancellation or a close came before the outcome: it may be or become
    committed."""

    outcome = Outcome.UNKNOWN


class RepeatTooOldError(OutcomeUnknownError):
    """An append was sent again, and its server no longer looks so far back in the log for its first copy
    (`server.repeatWindow`): it was not taken as a new one. Read from where you were and compare. Of a named
    producer the number stays refused: an event that is not in the log gets one above `last_sequence`."""


class SequenceInUseError(AppendError):
    """Another content has this sequence number of the named producer: what was given is not in the log, and
    never will be under a number that `transaction_id` has. None when an append of this very client has it and
    is on its way: if that one does not commit, the number is free."""

    def __init__(self, *, partition_id: int, sequence: int, transaction_id: int | None) -> None:
        who = (
            "an append of this client, with other content, that is on its way"
            if transaction_id is None
            else f"transaction {transaction_id}, which has other content"
        )
        super().__init__(
            f"append to partition {partition_id} was refused: the sequence number {sequence} is that of {who}",
            partition_id=partition_id,
        )
        self.sequence = sequence
        self.transaction_id = transaction_id


class SequenceUnsupportedError(AppendError):
    """The partition's server speaks no version in which it could look for a sequence number (release
    0.13.2): nothing was sent. A server of this release can take it."""

    retriable = True

    def __init__(self, *, partition_id: int, version: int) -> None:
        super().__init__(
            f"append to partition {partition_id} was not sent: its server speaks version {version}, and sequence numbers "
            "need version 5 (this release, with server.maxProtocolVersion 5)",
            partition_id=partition_id,
        )


class ProducerFencedError(AppendError):
    """A newer instance of the named producer has begun (or the producer was deleted, or an older copy of its
    record was put back): this one appends nothing more. `outcome` is unknown for an append that was under
    way. End this instance; the newer one knows, or learns, what is in the log."""

    def __init__(
        self,
        *,
        partition_id: int,
        producer: str,
        epoch: int,
        newer_epoch: int | None,
        outcome: Outcome = Outcome.FAILED,
        why: str | None = None,
    ) -> None:
        """`why`: another reason than a newer instance."""
        newer = "" if newer_epoch is None else f" of epoch {newer_epoch}"
        why = why or f"the producer {producer} has a newer instance{newer}, this one has epoch {epoch}"
        what = "was not sent" if outcome is Outcome.FAILED else "has no known outcome"
        super().__init__(
            f"append to partition {partition_id} {what}: {why}; end it", partition_id=partition_id
        )
        self.outcome = outcome
        self.producer = producer
        self.epoch = epoch
        self.newer_epoch = newer_epoch


class NotAppliedError(AppendError):
    """Committed, but the end came before this client's callbacks had applied it (the deadline, a callback
    that stopped the partition, a close). It is in the log: do not append it again."""

    outcome = Outcome.COMMITTED

    def __init__(self, committed: Committed, detail: str) -> None:
        super().__init__(
            f"partition {committed.partition_id}: transaction {committed.transaction_id} is committed, and was not "
            f"applied here: {detail}",
            partition_id=committed.partition_id,
        )
        self.committed = committed


class TransactionTooLargeError(AppendError):
    """The payload is larger than `client.maxTransactionBytes`, or the locks are more than
    `client.maxLocksPerAppend`: nothing was sent. Or its server takes no such append; of a named producer's
    append `outcome` is unknown then, because another instance may have written the number elsewhere."""

    user_error = True

    def __init__(self, message: str, *, partition_id: int, outcome: Outcome = Outcome.FAILED) -> None:
        super().__init__(message, partition_id=partition_id)
        self.outcome = outcome


class AttemptsExhaustedError(AppendFailedError):
    """Every allowed attempt failed; certainly not in the log."""


__all__ = [
    "AppendError",
    "AppendFailedError",
    "AttemptsExhaustedError",
    "AuthError",
    "ClientAheadError",
    "ClientClosedError",
    "ClusterDataError",
    "ClusterNotFoundError",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "DeadlineExceededError",
    "LockConflictError",
    "NoQuorumError",
    "NotAppliedError",
    "Outcome",
    "OutcomeUnknownError",
    "PartitionInactiveError",
    "PartitionNotFoundError",
    "PartitionUnavailableError",
    "PayloadError",
    "ProducerFencedError",
    "RepeatTooOldError",
    "RequestDeadlineError",
    "SequenceInUseError",
    "SequenceUnsupportedError",
    "ServerOverloadedError",
    "ServerRequestError",
    "StopApplyingError",
    "TlsSettingsError",
    "TransactionNotFoundError",
    "TransactionTooLargeError",
    "UsageError",
    "ViewAheadError",
    "WaltzClientError",
    "WindowFullError",
]
