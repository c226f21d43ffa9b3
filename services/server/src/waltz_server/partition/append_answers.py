"""What became of the appends of one connection of version 5: one answer to each, joined per turn of the loop.

Owner: the connection. The answers of a turn are one frame, behind the feed of what was committed in it. How
many may wait is bounded by what the connection may leave unread (`connection`), as for all answers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from waltz_protocol.frames.append_batch import Answer, Verdict, encode_answers
from waltz_server.partition.client import Client
from waltz_server.store.callbacks import Callbacks

ANSWERS_PER_FRAME = 4096

_GENERATION_PARTITION_SEQ_NUM = struct.Struct(">4xiii").unpack


class AppendAnswers:
    """See the module."""

    def __init__(
        self,
        client: Client,
        loop: Callbacks,
        address_of: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """`loop`: what escapes there ends the connection, whose client would wait for these answers.
        `address_of`: host and port of the server that has a partition, None when it is not known."""
        self._client = client
        self._address_of = address_of
        self._loop = loop
        self._answers: list[Answer] = []
        self._run: list[int] = []
        """Of the last answers, all committed, not in the list yet: generation, partition, sequence number,
        transaction id, count."""

    def committed(self, req_id: bytes, transaction_id: int, appends: int = 1) -> None:
        """Durable on a quorum, and in the log at this id; so are the next `appends` - 1."""
        generation, partition_id, seq_num = _GENERATION_PARTITION_SEQ_NUM(req_id)
        run = self._run
        if run:
            count = run[4]
            if (
                transaction_id == run[3] + count
                and seq_num == run[2] + count
                and partition_id == run[1]
                and generation == run[0]
            ):
                run[4] = count + appends
                return
        self._end_run()
        self._run = [generation, partition_id, seq_num, transaction_id, appends]

    def refused(self, req_id: bytes, verdict: Verdict, number: int = -1, text: str | None = None) -> None:
        """Any other end."""
        self._end_run()
        generation, partition_id, seq_num = _GENERATION_PARTITION_SEQ_NUM(req_id)
        if verdict is Verdict.NOT_SERVED:
            text = self._address_of(partition_id)
        self._answers.append(Answer(verdict, generation, partition_id, seq_num, number, text=text))

    def conflict(self, req_id: bytes, mark: int, lock: int, winner: int) -> None:
        """A lock was touched by the client `winner` (-1: not known); to be read up to `mark`."""
        self._end_run()
        generation, partition_id, seq_num = _GENERATION_PARTITION_SEQ_NUM(req_id)
        verdict = Verdict.LOCK_CONFLICT
        self._answers.append(
            Answer(verdict, generation, partition_id, seq_num, mark, lock=lock, winner=winner)
        )

    def _end_run(self) -> None:
        if self._run:
            self._close_run()
        elif not self._answers:
            self._loop.call_soon(self._send)

    def send_now(self) -> None:
        """Before something is sent that a client understands as the end of all that came before."""
        if self._run or self._answers:
            self._loop.run(self._send)

    def _close_run(self) -> None:
        generation, partition_id, seq_num, transaction_id, count = self._run
        self._answers.append(
            Answer(Verdict.COMMITTED, generation, partition_id, seq_num, transaction_id, count)
        )
        self._run = []

    def _send(self) -> None:
        if self._run:
            self._close_run()
        answers, self._answers = self._answers, []
        client = self._client
        if client.closed or not answers:
            return
        for start in range(0, len(answers), ANSWERS_PER_FRAME):
            some = answers[start : start + ANSWERS_PER_FRAME]
            client.send(encode_answers(client.client_id, some, client.version))
