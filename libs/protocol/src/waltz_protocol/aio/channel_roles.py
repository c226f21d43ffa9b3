"""What a channel expects of others: a handler that knows what frames mean, and the owner of accepted
channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from waltz_protocol.aio.receive_budget import ReceiveBudget
from waltz_protocol.aio.turns import Turns

if TYPE_CHECKING:
    from waltz_protocol.aio.channel import Channel


class ChannelHandler(Protocol):
    """The owner of a channel's meaning. All methods are sync and run on the loop.

    A ProtocolError from any of them closes the channel with that reason; any other exception is logged and
    closes too.
    """

    def channel_ready(self, channel: Channel) -> None:
        """The Hellos are exchanged; `channel.version` is set, frames may be sent."""

    def frame_received(self, channel: Channel, body: memoryview) -> Iterator[int] | None:
        """One whole frame (never empty). `body` is valid only during the call: copy what has to stay.

        An iterator is what is left to do: it yields what each step cost, in units of `turns`, and is stepped
        to its end before the next frame. A body larger than `frame.MAX_READ_BYTES` is valid until then.
        """

    def frames_ended(self, channel: Channel) -> None:
        """After the last whole frame of one socket read, or of a slice of it: the batch boundary.

        Called whenever `frame_received` was called before it, also when the channel closed meanwhile.
        """

    def writable_changed(self, channel: Channel, writable: bool) -> None:
        """Queued bytes crossed the high mark (False) or fell below the low mark (True)."""

    def channel_closed(self, channel: Channel, reason: str) -> None:
        """The channel is of no use any more; exactly once, also when it never got ready."""


class ChannelOwner(Protocol):
    """Who keeps the set of open channels (a listener)."""

    budget: ReceiveBudget | None
    """What unfinished frames of all its channels may take together; None = no bound."""
    turns: Turns
    """Shares the loop among its channels."""

    def opened(self, channel: Channel) -> str | None:
        """The transport is up. A text refuses the connection with that reason."""

    def greeted(self, channel: Channel) -> None:
        """The Hellos are exchanged."""

    def warn(self, channel: Channel, text: str) -> None:
        """Something about the peer is worth a line in the log."""

    def lost(self, channel: Channel) -> None:
        """The transport is gone."""
