"""A write that has left is waited for, also by whoever is cancelled: only then may the Lease be given
away."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.request_size import MAX_REQUEST_BYTES
from waltz_cluster.store import SetOp
from waltz_operator.kube.errors import KubeConflictError
from waltz_operator.model.actions import (
    Action,
    AssignInZooKeeper,
    CopyPartition,
    DeletePod,
    EmitEvent,
    RemoveOnNode,
    SetAvailability,
)
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.plan.safety_gates import Allowed
from waltz_operator.run.apply import Applier
from waltz_protocol.aio.tasks import spawn

pytestmark = pytest.mark.looptime

EVENT = EmitEvent(ObjectKey("WaltzCluster", "ledger"), "Restarting", "a node is restarted")


class Hand:
    """Takes a second for each write."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun = self.ended = 0
        self._error = error

    async def carry_out(self, _action: object, _observation: object) -> None:
        self.begun += 1
        await asyncio.sleep(1.0)
        self.ended += 1
        if self._error is not None:
            raise self._error


class Looked:
    """As much of an observation as the applier needs for harmless steps."""

    class snapshot:  # noqa: N801
        class cluster:  # noqa: N801
            class metadata:  # noqa: N801
                namespace, name = "demo", "ledger"


def applier(hand: Hand) -> Applier:
    return Applier(cast("Any", hand), cast("Any", hand), cast("Any", None), cast("Any", None), lambda: None)


async def test_cancellation_waits_for_the_write_under_way_and_makes_no_other() -> None:
    hand = Hand()
    work = spawn(applier(hand).apply([EVENT, EVENT], cast("Any", Looked)), "pass")
    await asyncio.sleep(0.5)
    assert (hand.begun, hand.ended) == (1, 0)
    work.cancel()
    await asyncio.wait({work})
    assert work.cancelled()
    assert (hand.begun, hand.ended) == (1, 1)


async def test_a_write_that_fails_ends_the_pass_with_its_line() -> None:
    outcome = await applier(Hand(KubeConflictError("it has changed"))).apply(
        [EVENT, EVENT], cast("Any", Looked)
    )
    assert outcome.done == ()
    assert outcome.failed == EVENT
    assert "it has changed" in outcome.error


async def test_a_znode_that_zookeeper_does_not_take_is_a_refusal_and_not_tried_at_once() -> None:
    """Sent, it would cut the connection of the operator, which would connect and send it again."""

    class Writing(Hand):
        async def carry_out(self, _action: object, _observation: object) -> None:
            self.begun += 1
            store = MemoryZooKeeper().session()
            await store.create("/assignment", b"")
            await store.transaction([SetOp("/assignment", bytes(2 * MAX_REQUEST_BYTES))])

    hand = Writing()
    outcome = await applier(hand).apply([EVENT, EVENT], cast("Any", Looked))
    assert (outcome.done, outcome.failed, outcome.retriable, outcome.passing) == ((), EVENT, False, False)
    assert f"/assignment would have {2 * MAX_REQUEST_BYTES} bytes" in outcome.error
    assert outcome.error.endswith("over several clusters"), "the way out is not cut off"


class Recording:
    """Notes what was carried out, and each look in between."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def carry_out(self, action: Action, _observation: object) -> None:
        self.done.append(type(action).__name__)

    async def look(self, _namespace: str, _name: str) -> Any:
        self.done.append("look")
        return Looked

    async def look_at_copies(self, _first: object) -> Any:
        self.done.append("look at copies")
        return Looked


async def test_what_depends_on_a_copy_is_proven_by_a_look_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look before it would show a target that is switched off."""
    monkeypatch.setattr("waltz_operator.run.apply.prove", lambda *_: Allowed("so it is"))
    hand = Recording()
    assign = AssignInZooKeeper({"n3:1": (0,)}, 0)
    steps: list[Action] = [
        RemoveOnNode("n0:1", 2, 1, True, "proof"),
        CopyPartition(0, "n0:1", 2, "n3:1", 2),
        SetAvailability("n3:1", 2, 0, True),
        assign,
        RemoveOnNode("n0:1", 2, 2, True, "proof"),
    ]
    carrier = Applier(cast("Any", hand), cast("Any", hand), hand.look, hand.look_at_copies, lambda: None)
    outcome = await carrier.apply(steps, cast("Any", Looked))
    assert outcome.failed is None
    assert hand.done == [
        "look at copies",
        "RemoveOnNode",
        "CopyPartition",
        "SetAvailability",
        "look at copies",
        "AssignInZooKeeper",
        "RemoveOnNode",
    ]


async def test_what_is_more_than_a_change_of_copies_has_a_whole_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz_operator.run.apply.prove", lambda *_: Allowed("so it is"))
    hand = Recording()
    remove = RemoveOnNode("n0:1", 2, 1, True, "proof")
    restart = DeletePod("ledger-storage-1-0-0", "uid", "its image is another", "all others are current")
    carrier = Applier(cast("Any", hand), cast("Any", hand), hand.look, hand.look_at_copies, lambda: None)
    await carrier.apply([remove, restart, remove], cast("Any", Looked))
    assert hand.done == ["look at copies", "RemoveOnNode", "look", "DeletePod", "RemoveOnNode"]
