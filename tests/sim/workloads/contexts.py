"""Tellers with callbacks and transaction contexts: the balances and the high-water mark live in one database.

Each attempt of a context is an append of its own in the history. That another attempt is made, or that it
expires, says that the one before certainly failed; that `on_completion(True)` is called says that the last
one is committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.sim.checkers.history import AppendOp, Outcome, Violation
from tests.sim.checkers.payload import decode
from tests.sim.cluster.access import ClusterAccess, Main
from tests.sim.kernel.process import current
from tests.sim.workloads import bank, headers
from tests.sim.workloads.database import DatabaseError, SimDatabase
from tests.sim.workloads.pace import meet
from tests.sim.workloads.tracked import TrackedClient, open_client
from tests.sim.workloads.view import CATCH_UP_SECONDS
from waltz_client import BYTES, Transaction, TransactionBuilder, TransactionContext, WaltzClientError

NAME = "contexts"


class Teller:
    """The callbacks: applies the bank's transfers to a database. Survives kills only in its database."""

    def __init__(
        self, access: ClusterAccess, partition: int, database: SimDatabase, kept: bank.Balances
    ) -> None:
        self.access = access
        self.partition = partition
        self.database = database
        self.balances = kept
        self.applied: dict[int, int] = {}
        """Uid -> transaction id, of what this client has applied."""
        self._after: int | None = None

    async def client_high_water_mark(self, partition_id: int) -> int:
        """From the database; the client may also take part in other partitions, which are only looked at."""
        if partition_id != self.partition:
            return -1
        self._after = await self.database.mark()
        return self._after

    async def apply_transaction(self, transaction: Transaction) -> None:
        """One database transaction, unless it is there already (an answer got lost)."""
        partition, transaction_id = transaction.partition_id, transaction.transaction_id
        history = self.access.history
        if partition != self.partition:
            history.book.observe(
                partition, transaction_id, transaction.req_id, transaction.header, None, "teller"
            )
            return
        data = await transaction.raw_data()
        history.book.observe(
            partition, transaction_id, transaction.req_id, transaction.header, data, "teller"
        )
        if self._after is None or transaction_id not in (self._after, self._after + 1):
            history.report(Violation("feed_order", f"callbacks: {transaction_id} came after {self._after}"))
        self._after = transaction_id
        payload = decode(data)
        if payload is None:
            history.report(Violation("payload", f"callbacks: transaction {transaction_id} holds {data!r}"))
            return
        self.applied[payload.uid] = transaction_id
        if transaction_id <= await self.database.mark():
            return

        def change() -> None:
            if transaction.header == headers.BANK:
                self.balances.apply(transaction_id, payload)

        await self.database.commit([(transaction_id, payload.uid)], transaction_id, change)

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: Exception) -> None:
        """Database errors are expected; nothing else is."""
        self.access.history.counts["callbacks raised"] += 1
        if not isinstance(error, (DatabaseError, WaltzClientError)):
            text = f"callbacks: partition {partition_id} transaction {transaction_id}: {error!r}"
            self.access.history.report(Violation("callback", text))


class Transfer(TransactionContext):
    """One transfer, decided again at each attempt."""

    def __init__(
        self, teller: Teller, client: TrackedClient, rng: random.Random, expires: float | None
    ) -> None:
        super().__init__(expires_after_seconds=expires)
        process = current()
        if process is not None:
            self._created_at = process.wall_ms() / 1000  # the wall clock of this simulated machine
        self._teller = teller
        self._client = client
        self._rng = rng
        self._op: AppendOp | None = None
        self.ending = ""

    def partition_id(self, num_partitions: int) -> int:
        """The bank's."""
        return self._teller.partition

    def execute(self, builder: TransactionBuilder) -> bool:
        """Another attempt: the one before is certainly not in the log."""
        if self.ending:
            text = f"{self._client.name}: a context that ended as '{self.ending}' is tried again"
            self._client.history.report(Violation("context_once", text))
        self._fail_last("tried again")
        decision = bank.decide(self._rng, self._teller.balances.of)
        if decision is None:
            return False
        body, locks = decision
        self._op = self._client.history.invoke(
            self._client.process,
            bank.NAME,
            self._teller.partition,
            body,
            header=headers.BANK,
            write_locks=locks,
            as_of=builder.client_high_water_mark,
        )
        builder.set_header(headers.BANK).set_transaction_data(self._op.data, BYTES).set_write_locks(locks)
        return True

    def _fail_last(self, why: str) -> None:
        op = self._op
        if op is not None and op.outcome is Outcome.PENDING:
            self._client.history.failed(op, why)

    def on_lock_failure(self) -> None:
        """Another attempt follows."""
        self._client.history.counts["context lock failures"] += 1

    def on_completion(self, committed: bool) -> None:
        """Committed, or declined because the account is empty."""
        self._end(f"completed {committed}")
        if not committed:
            self._fail_last("declined")
        elif self._op is not None:
            self._client.history.committed(self._op, None)

    def on_application(self) -> None:
        """Our own callbacks have applied it."""
        history, op = self._client.history, self._op
        if op is None or op.outcome is not Outcome.COMMITTED or op.uid not in self._teller.applied:
            history.report(
                Violation("on_application", f"append {op and op.uid} was not applied by the callbacks")
            )
        else:
            op.transaction_id = self._teller.applied[op.uid]

    def on_expiration(self) -> None:
        """Too old to be tried again."""
        self._end("expired")
        self._fail_last("expired")
        self._client.history.counts["contexts expired"] += 1

    def on_exception(self, error: BaseException) -> None:
        """It ended with an error."""
        self._end(type(error).__name__)
        op = self._op
        if op is not None and op.outcome is Outcome.PENDING and isinstance(error, Exception):
            self._client.note_error(op, error)

    def _end(self, how: str) -> None:
        if self.ending:
            text = f"{self._client.name}: a context ended as '{self.ending}' and again as '{how}'"
            self._client.history.report(Violation("context_once", text))
        self.ending = how


class Contexts:
    """Tellers of the bank that use the callback face of the client."""

    def __init__(self, partition: int, tellers: int = 1, mean_seconds: float = 1.5) -> None:
        self.name = NAME
        self._partition = partition
        self._tellers = tellers
        self._mean = mean_seconds

    def processes(self, access: ClusterAccess) -> list[tuple[str, Main]]:
        """The tellers, each with its database."""

        def main(name: str) -> Callable[[], Any]:
            rng = access.rng(name)
            state = access.history.database(name, self._partition)
            database = SimDatabase(state, access.rng(f"{name}/database"))
            balances = bank.Balances()
            return lambda: self._run(access, name, rng, Teller(access, self._partition, database, balances))

        return [(name, main(name)) for name in (f"contexts-{number}" for number in range(self._tellers))]

    async def _run(self, access: ClusterAccess, name: str, rng: random.Random, teller: Teller) -> None:
        contexts: list[Transfer] = []
        all_partitions = rng.random() < 0.3
        settings = {
            "auto_mount": all_partitions,
            "transaction_expiration_ms": rng.choice((0, 20_000)),
            "max_transaction_attempts": rng.choice((0, 0, 5)),
        }
        async with open_client(access, name, teller, **settings) as client:
            if not all_partitions:
                await client.client.set_partitions([self._partition])
            while await meet(access, rng, self._mean):
                context = Transfer(teller, client, rng, rng.choice((None, None, 1.0, 0.05)))
                contexts.append(context)
                try:
                    await client.client.submit(context)
                except WaltzClientError as error:
                    client.note_client_ahead(error)
            if rng.random() < 0.5:
                await self._finish(client, teller)
        for context in contexts:
            if not context.ending:
                access.history.report(
                    Violation("context_ended", f"{name}: a context was never informed of its end")
                )

    async def _finish(self, client: TrackedClient, teller: Teller) -> None:
        """The faults are over: everything committed must be applied. Violation: `progress`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CATCH_UP_SECONDS
        mark = await client.high_water_mark(self._partition, CATCH_UP_SECONDS)
        while mark is None or teller.database.state.mark < mark or client.client.has_pending_transactions():
            if loop.time() >= deadline:
                text = f"{client.name}: the callbacks have applied {teller.database.state.mark} of {mark}"
                client.history.report(Violation("progress", text))
                return
            await asyncio.sleep(0.5)
