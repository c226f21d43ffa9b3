"""The errors of this package: one hierarchy, each class says whether trying again can help.

`retriable` is about the same operation on a fresh connection. `user_error` marks mistakes of configuration:
programs print them as one line, without a stack trace.
"""

from typing import ClassVar


class WaltzProtocolError(Exception):
    """Base of every error raised by this package."""

    retriable: ClassVar[bool] = False
    user_error: ClassVar[bool] = False


class ProtocolError(WaltzProtocolError):
    """The peer sent bytes that the protocol does not allow. The only answer is to close the connection."""


class RecordChecksumError(ProtocolError):
    """A stored record whose checksum does not match it; the bytes around it may be in order."""


class RecordPartitionError(ProtocolError):
    """A stored record that is whole, of another partition than the one it is read from or written to."""


class FrameTooLargeError(ProtocolError):
    """A frame announces more bytes than the configured limit."""


class TooManyLocksError(ProtocolError):
    """A well-formed append with more locks than are taken. It is dropped; the connection may stay."""

    def __init__(self, count: int, most: int) -> None:
        super().__init__(
            f"an append with {count} locks of one kind, where {most} are left of those it may have"
        )


class EncodeError(WaltzProtocolError):
    """A message cannot be put on the wire: a value out of range, or a protocol version that lacks it."""


class HandshakeError(WaltzProtocolError):
    """The two sides did not agree: no common version, no Hello in time, or no Hello at all."""

    retriable = True


class ChannelClosedError(WaltzProtocolError):
    """The connection is gone; what was outstanding on it may or may not have happened."""

    retriable = True

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequestTimeoutError(WaltzProtocolError):
    """No reply in time; the request may or may not have happened. A late reply is ignored."""

    retriable = True


class RequestFailedError(WaltzProtocolError):
    """The peer answered with a failure; `message` is its text (opaque, for people)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ConnectError(WaltzProtocolError):
    """A connection could not be opened; one clear line with the address and the cause."""

    retriable = True
    user_error = True

    def __init__(self, message: str, *, refused: bool = False, turned_away: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """The machine answered that nobody listens there."""
        self.turned_away = turned_away
        """Somebody is there, and TLS failed, or the connection was closed before the exchange of Hellos: one
        side does not accept what the other one shows."""


class ListenError(WaltzProtocolError):
    """A port could not be opened for listening."""

    user_error = True


class PortInUseError(ListenError):
    """Another process listens on the port."""


class TlsSettingsError(WaltzProtocolError):
    """Keys or certificates cannot be used; one clear line naming the setting."""

    user_error = True


class MissingPackageError(WaltzProtocolError):
    """A setting asks for what a package does that is not installed; one clear line naming both."""

    user_error = True
