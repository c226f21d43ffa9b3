"""The face of a client connection as the partition layer sees it."""

from __future__ import annotations

from typing import Protocol

from waltz_protocol.frames.append_batch import Verdict


class Answers(Protocol):
    """Where answers to the appends of a connection of version 5 go (`append_answers.AppendAnswers`)."""

    def committed(self, req_id: bytes, transaction_id: int, appends: int = 1) -> None: ...

    def refused(self, req_id: bytes, verdict: Verdict, number: int = -1, text: str | None = None) -> None: ...

    def conflict(self, req_id: bytes, mark: int, lock: int, winner: int) -> None: ...

    def send_now(self) -> None: ...


class Parked(Protocol):
    """Something that has output waiting for a client whose write buffer was full."""

    def client_writable(self, client: Client) -> None:
        """The client's buffer has drained; continue writing (called once per request to `Client.park`)."""


class Client(Protocol):
    """One connection. Identity (`is`) is what mounts are bound to; equality is never used."""

    @property
    def client_id(self) -> int:
        """Client id of the first message of the connection; fixed from then on."""

    @property
    def connection_seq_num(self) -> int:
        """Sequence number of the first mount of the connection; fixed from then on."""

    @property
    def version(self) -> int:
        """Negotiated protocol version, 0 to 5."""

    @property
    def answers(self) -> Answers | None:
        """Where answers to its appends go; None before version 5."""

    @property
    def writable(self) -> bool:
        """False while more bytes wait to be sent than the high-water mark of the channel."""

    @property
    def closed(self) -> bool: ...

    def send(self, *parts: bytes | memoryview) -> None:
        """Queue one or more whole frames; parts must never change afterwards. Dropped when closed."""

    def close(self, reason: str) -> None:
        """End the connection; the reason goes to the log."""

    def misbehaved(self, what: str) -> None:
        """Name the peer in the log (a bounded number of lines per address) for what no honest client
        sends."""

    def park(self, parked: Parked) -> None:
        """Call `parked.client_writable(self)` once the connection is writable again."""

    def withdraw_mount(self, partition_id: int) -> None:
        """Another connection has taken the place of this one: NOT_READY for its mount, should anybody still
        read it."""

    def note_mount(self, partition_id: int, incarnation: object, req_id: bytes) -> None:
        """Remember the ReqId of the latest mount answered READY and which partition object gave the
        answer."""
