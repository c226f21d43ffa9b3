"""What the recording client judges at once: it is given a client that lies, in one thing at a time."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from tests.sim.checkers.history import AppendOp, History, Outcome
from tests.sim.cluster.access import ClusterAccess
from tests.sim.workloads.bank import Balances
from tests.sim.workloads.contexts import Teller, Transfer
from tests.sim.workloads.database import SimDatabase
from tests.sim.workloads.tracked import TrackedClient
from waltz_client import (
    ClientAheadError,
    ClientClosedError,
    Committed,
    DeadlineExceededError,
    LockConflictError,
    OutcomeUnknownError,
    TransactionBuilder,
    TransactionNotFoundError,
    WaltzClient,
)


class Liar:
    """A client that answers every call with what it was given."""

    client_id = 1

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def append(self, **_: object) -> object:
        return await self.say()

    async def writable(self, *_: object, **__: object) -> None: ...

    async def get_data(self, *_: object, **__: object) -> object:
        return await self.say()

    async def high_water_mark(self, *_: object, **__: object) -> object:
        return await self.say()

    async def say(self) -> object:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Scene:
    """A history, its clock, and a tracked client that gets this answer."""

    def __init__(self, answer: object = None) -> None:
        self.seconds = 0.0
        self.history = History(lambda: self.seconds)
        self.client = TrackedClient(cast(WaltzClient, Liar(answer)), self.history, "process")

    def invoke(self, **more: Any) -> AppendOp:
        return self.history.invoke("process", "blind", 0, {}, **more)

    def append(self, deadline: float = 5.0, partition: int = 0) -> AppendOp:
        op = self.history.invoke("process", "blind", partition, {})
        asyncio.run(self.client.append(op, deadline_seconds=deadline))
        return op

    def broken(self) -> list[str]:
        return [violation.invariant for violation in self.history.violations]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Committed(0, 7), Outcome.COMMITTED),
        (LockConflictError(partition_id=0, conflicting_high_water_mark=3), Outcome.FAILED),
        (ClientClosedError("closed"), Outcome.FAILED),
    ],
)
def test_outcomes_are_noted(answer: object, outcome: Outcome) -> None:
    scene = Scene(answer)
    op = scene.append()
    assert op.outcome is outcome
    assert op.transaction_id == (7 if outcome is Outcome.COMMITTED else None)
    assert scene.broken() == []


def test_a_cancelled_append_is_unknown() -> None:
    scene = Scene(asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        scene.append()
    assert scene.history.appends[0].outcome is Outcome.UNKNOWN


def test_acknowledged_for_another_partition() -> None:
    scene = Scene(Committed(1, 7))
    scene.append(partition=0)
    assert scene.broken() == ["acknowledged"]


@pytest.mark.parametrize("error", [OutcomeUnknownError, DeadlineExceededError])
def test_outcome_early(error: type[OutcomeUnknownError] | type[DeadlineExceededError]) -> None:
    scene = Scene(error("too early", partition_id=0))
    scene.append(deadline=5.0)
    assert scene.broken() == ["outcome_early"]


def test_outcome_unknown_when_the_client_is_closed_is_not_early() -> None:
    scene = Scene(OutcomeUnknownError("closed", partition_id=0))
    scene.client.closing = True
    scene.append()
    assert scene.broken() == []


def test_client_ahead_also_as_a_cause() -> None:
    failure = ClientClosedError("closed")
    failure.__cause__ = ClientAheadError(0, 5)
    scene = Scene(failure)
    scene.append()
    assert scene.broken() == ["client_ahead"]


def test_own_reads_a_client_does_not_find_what_it_was_shown() -> None:
    scene = Scene(TransactionNotFoundError("not there"))
    scene.client.saw(0, 4)
    assert asyncio.run(scene.client.get_data(0, 5)) is None
    assert scene.broken() == []
    assert asyncio.run(scene.client.get_data(0, 4)) is None
    assert scene.broken() == ["own_reads"]


def test_a_mark_is_held_against_what_the_client_was_shown() -> None:
    scene = Scene(3)
    scene.client.saw(0, 4)
    assert asyncio.run(scene.client.high_water_mark(0)) == 3
    read = scene.history.mark_reads[0]
    assert (read.own_floor, read.value) == (4, 3)


def test_outcome_given() -> None:
    scene = Scene()
    op = scene.invoke()
    scene.client.check_ended([op])
    assert scene.broken() == ["outcome_given"]


# -- transaction contexts ------------------------------------------------------------------------------------


class ContextScene(Scene):
    """A transfer at its first attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.history.database("db", 0)

        class Access:
            history = self.history

        database = SimDatabase(self.history.databases[0], random.Random(1))
        self.teller = Teller(cast(ClusterAccess, Access()), 0, database, Balances())
        self.transfer = Transfer(self.teller, self.client, random.Random(1), None)
        assert self.transfer.execute(TransactionBuilder(3))
        self.op = self.history.appends[0]


def test_another_attempt_means_that_the_one_before_failed() -> None:
    scene = ContextScene()
    assert scene.op.as_of == 3
    scene.transfer.execute(TransactionBuilder(4))
    assert scene.op.outcome is Outcome.FAILED
    scene.transfer.on_completion(True)
    assert scene.history.appends[1].outcome is Outcome.COMMITTED
    assert scene.broken() == []


def test_expired_means_failed() -> None:
    scene = ContextScene()
    scene.transfer.on_expiration()
    assert scene.op.outcome is Outcome.FAILED


def test_context_once() -> None:
    scene = ContextScene()
    scene.transfer.on_expiration()
    scene.transfer.on_completion(False)
    assert scene.broken() == ["context_once"]


def test_context_once_tried_again_after_its_end() -> None:
    scene = ContextScene()
    scene.transfer.on_expiration()
    scene.transfer.execute(TransactionBuilder(4))
    assert scene.broken() == ["context_once"]


def test_on_application_before_the_callbacks_applied_it() -> None:
    scene = ContextScene()
    scene.transfer.on_completion(True)
    scene.transfer.on_application()
    assert scene.broken() == ["on_application"]


def test_on_application_says_the_id() -> None:
    scene = ContextScene()
    scene.transfer.on_completion(True)
    scene.teller.applied[scene.op.uid] = 9
    scene.transfer.on_application()
    assert scene.op.transaction_id == 9
    assert scene.broken() == []


def test_two_clients_that_were_given_the_same_id_are_two() -> None:
    """The second may have received what the first never learned (seed 1660)."""
    scene = Scene(None)
    again = TrackedClient(cast(WaltzClient, Liar(None)), scene.history, "process")
    assert again.name != scene.client.name
