"""TRANSACTION_DATA_REQUEST: from the cache at once, else from storage, read ahead for whoever reads in order.

Client-server protocol, transaction data. Answers may come in any order.

Rules
* Nothing above the committed mark is looked for (safety D1); such a request fails at once.
* A failure is an answer and leaves nothing behind (weakness 13.13).
* A client that does not read its answers costs 36 bytes or so per request, not the data: while its connection
  is not writable, requests are put aside and looked up again when it is. Each connection may have
  `MAX_WAITING` requests waiting for storage per partition; above that they fail ("too many requests"). All
  connections together may have `MAX_WAITING_TOGETHER`: beyond it requests of those fail that have more than
  their share. One that lets as many pile up without reading is closed. Reading from it is never paused: a
  client whose threads write before they read would wait for us while we wait for it.
* What is done at once for requests that have piled up (a connection that drained, a partition that leaves) is
  done for `ANSWERS_PER_TURN` of them per turn of the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from waltz_protocol.frames.data import data_failure, data_response
from waltz_server.partition.client import Client
from waltz_server.partition.metrics import PartitionMetrics
from waltz_server.partition.reads import RangeReader
from waltz_server.partition.transaction_cache import PartitionTransactionCache
from waltz_server.store.callbacks import Callbacks
from waltz_server.store.committed_mark import ReadableMark
from waltz_server.store.record_run import RecordRun

MAX_WAITING = 20_000
MAX_WAITING_TOGETHER = 100_000
ANSWERS_PER_TURN = 1000
MIN_AHEAD = 16
MAX_AHEAD = 1024
SINGLE_READS_AFTER_FAILURE = 64
NOT_READY_TEXT = "partition not ready"

Request = tuple[bytes, int]
"""ReqId and transaction id."""
Waiting = dict[int, dict[Client, list[bytes]]]
"""Transaction id -> who waits for it, with which ReqIds."""


class DataReads:
    """Requests for transaction data of one partition."""

    def __init__(
        self,
        partition_id: int,
        *,
        mark: ReadableMark,
        cache: PartitionTransactionCache,
        reader: RangeReader,
        metrics: PartitionMetrics,
        loop: Callbacks,
    ) -> None:
        self._loop = loop
        self._partition_id = partition_id
        self._mark = mark
        self._cache = cache
        self._reader = reader
        self._metrics = metrics
        self._waiting: Waiting = {}
        self._of_client: dict[Client, set[int]] = {}
        """The transactions each client waits for."""
        self._outstanding: dict[Client, int] = {}
        self._total = 0
        self._aside: dict[Client, deque[Request]] = {}
        self._ahead = MIN_AHEAD
        self._next_expected = -1
        self._one_by_one = 0
        self._closed = False

    def handle(self, client: Client, req_id: bytes, transaction_id: int) -> None:
        """Answer now, or when the data is there."""
        if not client.writable:
            self._put_aside(client, req_id, transaction_id)
            return
        record = self._cache.get(transaction_id)
        if record is not None:
            client.send(*data_response(client.version, req_id, transaction_id, record))
            return
        self._miss(client, req_id, transaction_id)

    def _miss(self, client: Client, req_id: bytes, transaction_id: int) -> None:
        if self._closed or not self._mark.known:
            self._fail(client, req_id, transaction_id, NOT_READY_TEXT)
            return
        mark = self._mark.txid
        if not 0 <= transaction_id <= mark:
            text = f"transaction not found: partitionId={self._partition_id} transactionId={transaction_id}"
            self._fail(client, req_id, transaction_id, text)
            return
        count = self._outstanding.get(client, 0)
        if count >= MAX_WAITING or (self._total >= MAX_WAITING_TOGETHER and count >= self._share()):
            self._fail(client, req_id, transaction_id, "too many requests")
            return
        self._outstanding[client] = count + 1
        self._total += 1
        self._waiting.setdefault(transaction_id, {}).setdefault(client, []).append(req_id)
        self._of_client.setdefault(client, set()).add(transaction_id)
        if not self._reader.join(transaction_id, client):
            self._metrics.transaction_cache_miss.mark()
            self._read_from(transaction_id, mark, client)

    def _share(self) -> int:
        return MAX_WAITING_TOGETHER // max(1, len(self._outstanding))

    def _read_from(self, first: int, mark: int, client: Client) -> None:
        """Start a range at `first`; it doubles while requests continue where the last range ended."""
        sequential = self._next_expected <= first < self._next_expected + MAX_AHEAD
        self._ahead = min(self._ahead * 2, MAX_AHEAD) if sequential else MIN_AHEAD
        count = 1 if self._one_by_one else min(self._ahead, mark - first + 1)
        self._next_expected = first + count
        self._reader.request(first, count, client)

    def delivered(self, end: int, run: RecordRun) -> None:
        """The range that ends before `end` has been read; waiters beyond the last record ask again."""
        self._one_by_one = max(self._one_by_one - 1, 0)
        waiting = self._waiting
        if not waiting:
            return
        position = run.first
        for record in run.records:
            waiters = waiting.pop(position, None)
            if waiters is not None:
                for client, req_ids in waiters.items():
                    self._release(client, position, len(req_ids))
                    for req_id in req_ids:
                        if client.writable:
                            client.send(*data_response(client.version, req_id, position, record))
                        else:
                            self._put_aside(client, req_id, position)
            position += 1
        self._ask_again(position, end)

    def _ask_again(self, first: int, end: int) -> None:
        for transaction_id in range(first, end):
            for client in self._waiting.get(transaction_id, ()):
                self._reader.request(transaction_id, end - transaction_id, client)

    def failed(self, first: int, end: int, text: str) -> None:
        """A range could not be read. For a while only single records are asked for, so that one bad record,
        or a range too large for a slow replica, does not take its neighbours along."""
        self._one_by_one = SINGLE_READS_AFTER_FAILURE
        for transaction_id in range(first, end):
            for client, req_ids in self._waiting.pop(transaction_id, {}).items():
                self._release(client, transaction_id, len(req_ids))
                for req_id in req_ids:
                    self._fail(client, req_id, transaction_id, text)

    def _release(self, client: Client, transaction_id: int, count: int) -> None:
        self._total -= count
        self._outstanding[client] -= count
        mine = self._of_client[client]
        mine.discard(transaction_id)
        if not mine:
            del self._of_client[client], self._outstanding[client]

    def _fail(self, client: Client, req_id: bytes, transaction_id: int, text: str) -> None:
        client.send(data_failure(client.version, req_id, transaction_id, text))

    # -- clients that do not read ---------------------------------------------------------------------------

    def _put_aside(self, client: Client, req_id: bytes, transaction_id: int) -> None:
        if client.closed:
            return
        aside = self._aside.get(client)
        if aside is None:
            aside = self._aside[client] = deque()
            client.park(self)
        if len(aside) >= MAX_WAITING:
            client.close("too many data requests without reading the answers")
            return
        aside.append((req_id, transaction_id))

    def client_writable(self, client: Client) -> None:
        """The connection drained: look up again what was put aside."""
        aside = self._aside.pop(client, None)
        if aside is None:
            return
        for _ in range(min(len(aside), ANSWERS_PER_TURN)):
            if not client.writable:
                break
            self.handle(client, *aside.popleft())
        if aside and not client.closed:
            self._aside[client] = aside
            if client.writable:
                self._loop.call_soon(self.client_writable, client)
            else:
                client.park(self)

    def forget(self, client: Client) -> None:
        """The connection has gone."""
        self._aside.pop(client, None)
        self._total -= self._outstanding.pop(client, 0)
        for transaction_id in self._of_client.pop(client, ()):
            waiters = self._waiting[transaction_id]
            del waiters[client]
            if not waiters:
                del self._waiting[transaction_id]

    def close(self) -> None:
        """The partition leaves: everyone who waits is informed."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        aside, self._aside = self._aside, {}
        self._outstanding.clear()
        self._of_client.clear()
        self._total = 0
        self._fail_all(_all_of(waiting, aside))

    def _fail_all(self, requests: Iterator[tuple[Client, bytes, int]]) -> None:
        """A turn's worth of them, the rest in later turns."""
        for number, (client, req_id, transaction_id) in enumerate(requests, 1):
            self._fail(client, req_id, transaction_id, NOT_READY_TEXT)
            if number == ANSWERS_PER_TURN:
                self._loop.call_soon(self._fail_all, requests)
                return


def _all_of(waiting: Waiting, aside: dict[Client, deque[Request]]) -> Iterator[tuple[Client, bytes, int]]:
    for transaction_id, waiters in waiting.items():
        for client, req_ids in waiters.items():
            for req_id in req_ids:
                yield client, req_id, transaction_id
    for client, requests in aside.items():
        for req_id, transaction_id in requests:
            yield client, req_id, transaction_id
