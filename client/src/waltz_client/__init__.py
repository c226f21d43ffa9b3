"""The client library of Waltz: append transactions under optimistic locks, read them back in commit order.

Start with `WaltzClient`; `waltz_client.blocking` is the same without an event loop.
"""

from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.appender import Append
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.client import WaltzClient
from waltz_client.context import PartitionLocalLock, TransactionBuilder, TransactionContext
from waltz_client.errors import (
    AppendError,
    AppendFailedError,
    AttemptsExhaustedError,
    AuthError,
    ClientAheadError,
    ClientClosedError,
    ClusterDataError,
    ClusterNotFoundError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    LockConflictError,
    NoQuorumError,
    NotAppliedError,
    Outcome,
    OutcomeUnknownError,
    PartitionInactiveError,
    PartitionNotFoundError,
    PartitionUnavailableError,
    PayloadError,
    ProducerFencedError,
    RepeatTooOldError,
    RequestDeadlineError,
    SequenceInUseError,
    SequenceUnsupportedError,
    ServerOverloadedError,
    ServerRequestError,
    StopApplyingError,
    TlsSettingsError,
    TransactionNotFoundError,
    TransactionTooLargeError,
    UsageError,
    ViewAheadError,
    WaltzClientError,
    WindowFullError,
)
from waltz_client.feed import Feed
from waltz_client.headers import HeaderNamespace
from waltz_client.observer import ClientObserver, ClientStatus, PartitionStatus
from waltz_client.range_batch import RangeBatch
from waltz_client.ranges import RangeRead
from waltz_client.serializers import BYTES, JSON, STRING, Deserializer, Serializer
from waltz_client.settings import ClientSettings
from waltz_client.transaction import Committed, DataTransaction, FeedTransaction, Transacted, Transaction
from waltz_client.with_data import DataFeed, DataRangeBatch, DataRangeRead
from waltz_protocol import __version__
from waltz_protocol.keys import partition_for
from waltz_protocol.locks import LockId
from waltz_protocol.types import Endpoint

__all__ = [
    "BYTES",
    "JSON",
    "STRING",
    "Append",
    "AppendError",
    "AppendFailedError",
    "AttemptsExhaustedError",
    "AuthError",
    "ClientAheadError",
    "ClientClosedError",
    "ClientObserver",
    "ClientSettings",
    "ClientStatus",
    "ClusterDataError",
    "ClusterNotFoundError",
    "Committed",
    "ConfigError",
    "ConnectError",
    "ConnectionLostError",
    "DataFeed",
    "DataRangeBatch",
    "DataRangeRead",
    "DataTransaction",
    "DeadlineExceededError",
    "Deserializer",
    "Endpoint",
    "Feed",
    "FeedTransaction",
    "HeaderNamespace",
    "LockConflictError",
    "LockId",
    "NoQuorumError",
    "NotAppliedError",
    "Outcome",
    "OutcomeUnknownError",
    "PartitionInactiveError",
    "PartitionLocalLock",
    "PartitionNotFoundError",
    "PartitionStatus",
    "PartitionUnavailableError",
    "PayloadError",
    "PendingAppend",
    "ProducerFencedError",
    "RangeBatch",
    "RangeRead",
    "RepeatTooOldError",
    "RequestDeadlineError",
    "SequenceInUseError",
    "SequenceUnsupportedError",
    "Serializer",
    "ServerOverloadedError",
    "ServerRequestError",
    "StopApplyingError",
    "TlsSettingsError",
    "Transacted",
    "Transaction",
    "TransactionBuilder",
    "TransactionContext",
    "TransactionNotFoundError",
    "TransactionTooLargeError",
    "UsageError",
    "ViewAheadError",
    "WaltzClient",
    "WaltzClientCallbacks",
    "WaltzClientError",
    "WindowFullError",
    "__version__",
    "partition_for",
]
