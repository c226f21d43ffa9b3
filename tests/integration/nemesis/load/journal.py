"""The journal of one load process: a line per event, given to the kernel before the process continues, so a
SIGKILL loses none.

    I id                     an append is about to be sent
    O id partition txid      acknowledged
    F id reason              certainly failed
    U id reason              outcome unknown
    T partition txid digest  delivered by a feed
    R                        the feeds begin anew (after an end of the client object)
    B text                   something that must not happen (a stack trace, a client ahead of the log)
    N text                   a remark

Every line ends with the time (seconds of the machine's monotonic clock, which all processes share).
"""

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from waltz_client.errors import AppendError, Outcome


def digest(header: int, data: bytes) -> str:
    """Short name of a transaction's contents."""
    return hashlib.blake2b(header.to_bytes(4, "big", signed=True) + data, digest_size=8).hexdigest()


class Journal:
    """The writing side. One process writes one journal."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def close(self) -> None:
        os.close(self._fd)

    def sending(self, name: str) -> None:
        self._write("I", name)

    def acknowledged(self, name: str, partition: int, transaction_id: int) -> None:
        self._write("O", name, str(partition), str(transaction_id))

    def ended(self, name: str, error: AppendError) -> None:
        """An append that was not acknowledged."""
        self._write("U" if error.outcome is Outcome.UNKNOWN else "F", name, type(error).__name__)

    def not_sent(self, name: str) -> None:
        """An append that the client refused at once."""
        self._write("F", name, "NotSent")

    def delivered(self, transactions: list[tuple[int, int, str]]) -> None:
        """(partition, transaction id, digest) of each, in the order they came."""
        now = f"{time.monotonic():.3f}"
        lines = "".join(f"T {partition} {txid} {what} {now}\n" for partition, txid, what in transactions)
        os.write(self._fd, lines.encode())

    def feeds_begin(self) -> None:
        self._write("R")

    def bug(self, text: str) -> None:
        self._write("B", json.dumps(text))

    def remark(self, text: str) -> None:
        self._write("N", json.dumps(text))

    def _write(self, *words: str) -> None:
        os.write(self._fd, f"{' '.join(words)} {time.monotonic():.3f}\n".encode())


@dataclass(frozen=True)
class Event:
    """One line of a journal."""

    kind: str
    words: list[str]
    time: float


class JournalReader:
    """The reading side, for the checker: what was added since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name.removesuffix(".journal")
        self._offset = 0

    def news(self) -> list[Event]:
        """Whole lines only: a line that is being written waits for the next look."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [_parse(line) for line in whole.decode().splitlines()]


def _parse(line: str) -> Event:
    kind, _, rest = line.partition(" ")
    text, _, when = rest.rpartition(" ")
    if kind in ("B", "N"):
        return Event(kind, [json.loads(text)], float(when))
    return Event(kind, text.split(), float(when))
