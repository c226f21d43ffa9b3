"""What the parts of an in-process log hand to one another."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from waltz_protocol.messages.fields import Message
from waltz_protocol.types import ReqId


class LoggedTransaction(NamedTuple):
    """One committed transaction, as a test sees it."""

    transaction_id: int
    req_id: ReqId
    header: int
    data: bytes


class ClientConnection(Protocol):
    """One connection of a client, as a partition sees it."""

    version: int
    seq_num: int | None
    """That of its first mount."""

    def send(self, message: Message) -> None:
        """Send one message; dropped when the connection is gone."""
        ...

    def send_frame(self, frame: bytes) -> None:
        """Send one whole frame; dropped when the connection is gone."""
        ...

    def close(self, reason: str) -> None:
        """End the connection."""
        ...
