"""Is this copy current? The tools, the operator's gates, its conditions and its metrics answer alike, by one
table of evidence.

The differences that are meant are columns of the table: `later_session_passes` of the pages (status, verify)
and the lesser question of `waltz storage forget` (is the copy intact?), both argued in
`waltz_cluster.replica_rules`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import NamedTuple

import pytest

from operator_tests.plan.cluster import KEY, NOW, SESSION, answer, facts, listed, name
from waltz_admin import seeding
from waltz_admin.cluster_status import Replica
from waltz_admin.copies import NodePartition
from waltz_admin.errors import UnsafeChangeError
from waltz_admin.forget import UnknownReplicaError, forget_replica
from waltz_admin.safety import check_change, check_removal
from waltz_admin.status import summarize
from waltz_admin.storage_admin import NodeStatus
from waltz_admin.tree import NodeMaps
from waltz_admin.verify import Answers, Check, NodeAnswer, check
from waltz_admin.view import ClusterView
from waltz_cluster.memory_store import MemoryStore, MemoryZooKeeper
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.replica_rules import Answer, NoAnswer, NotHeld, ReplicaAnswer, Standing
from waltz_cluster.serializers import (
    ClusterParams,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaState,
    StoreParams,
)
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import NodeReplica, NodeView, TreeView, Unknown
from waltz_operator.plan.safety_gates import Allowed, Denied, may_change, may_delete
from waltz_operator.plan.status.partition_health import health_of
from waltz_operator.run.metrics import replica_figures
from waltz_protocol.types import UNRESOLVED, Endpoint, PartitionId

ROOT = "/test"
P = PartitionId(0)
NODE, OTHER, THIRD = name(0), name(1), name(2)
GOOD = ReplicaAnswer(SESSION, True, True)
NO_RECORD = "it did not show the record at its low-water mark"
LOST = "its disk was lost or is an older copy"
DROPPED = f"it dropped out in session {SESSION - 1} at 3"


class Row(NamedTuple):
    """`listed`: session and closing mark of the copy in ZooKeeper, None when it is not listed. `reason`:
    why it is not current.

    `age_seconds`: of the operator's answer; a tool has none. `pages_pass`: to status and verify it is
    current all the same. `intact`: it may not be given up. `unasked`: why by ZooKeeper alone; rule A6
    then asks the node nothing.
    """

    listed: tuple[int, int] | None
    answer: Answer
    reason: str
    age_seconds: float = 0.0
    pages_pass: bool = False
    intact: bool = False
    unasked: str = ""


HERE = (SESSION, UNRESOLVED)
BEFORE = SESSION - 1
TABLE = {
    "current": Row(HERE, GOOD, "", intact=True),
    "the record at its mark is missing": Row(HERE, GOOD._replace(holds_low_water_mark=False), NO_RECORD),
    "the record at its mark cannot be read": Row(HERE, GOOD._replace(holds_low_water_mark=None), NO_RECORD),
    "in the next session": Row(
        HERE,
        GOOD._replace(session_id=SESSION + 1),
        f"it is in session {SESSION + 1}, ZooKeeper in {SESSION}",
        pages_pass=True,
        intact=True,
    ),
    "in the next session, record missing": Row(
        HERE,
        ReplicaAnswer(SESSION + 1, True, False),
        f"it is in session {SESSION + 1}, ZooKeeper in {SESSION}",
    ),
    "set back": Row(HERE, GOOD._replace(session_id=BEFORE), LOST),
    "emptied": Row(HERE, GOOD._replace(session_id=-1), LOST),
    "switched off": Row(HERE, GOOD._replace(available=False), "it is switched off, or out of service"),
    "out of service": Row(HERE, GOOD._replace(fault="a sync failed"), "a sync failed"),
    "without the partition": Row(HERE, NotHeld(), "it does not have the partition"),
    "silent": Row(HERE, NoAnswer("connection refused"), "no answer: connection refused"),
    "an old answer": Row(HERE, GOOD, "no answer: its answer is 60 s old", age_seconds=60.0),
    "dropped out": Row((BEFORE, 3), GOOD._replace(session_id=BEFORE), DROPPED, intact=True),
    "dropped out, filled and not listed yet": Row((BEFORE, 3), GOOD, DROPPED, intact=True),
    "dropped out and set back": Row((BEFORE, 3), GOOD._replace(session_id=BEFORE - 1), LOST, unasked=DROPPED),
    "listed in an earlier session": Row(
        (BEFORE, UNRESOLVED),
        GOOD._replace(session_id=BEFORE),
        f"it dropped out in session {BEFORE}",
        intact=True,
    ),
    "new": Row(
        None,
        GOOD._replace(session_id=-1),
        "it is not among the replicas of the last session: it is filled first",
    ),
}


def metadata(row: Row) -> PartitionMetadata:
    """The copy in question, and one that is current."""
    states: dict[str, ReplicaState] = {OTHER: listed(OTHER)}
    if row.listed is not None:
        states[NODE] = listed(NODE, *row.listed)
    return PartitionMetadata(1, SESSION, states)


class Probe:
    """Asks the node in question; all others are well."""

    def __init__(self, row: Row) -> None:
        self.row = row

    async def ask(self, connect_string: str, partition_id: int) -> Answer:
        return self.row.answer if connect_string == NODE else GOOD


async def store_of(row: Row) -> tuple[MemoryStore, StoreMetadata]:
    store = MemoryZooKeeper().session()
    await seeding.create(store, ROOT, "demo", 1)
    found = StoreMetadata(store, ROOT)
    await found.create_partition(0, metadata(row))
    return store, found


async def refused(question: Awaitable[object]) -> str:
    try:
        await question
    except UnsafeChangeError as error:
        return str(error)
    return ""


def view(row: Row) -> ClusterView:
    nodes = (NODE, OTHER)
    maps = NodeMaps(dict.fromkeys(nodes, 1), dict.fromkeys(nodes, (P,)), dict.fromkeys(nodes, 2), (0, 0, 0))
    params = StoreParams(KEY, 1)
    return ClusterView(
        ClusterParams("test", 1), params, (), PartitionAssignment(), False, maps, {P: metadata(row)}
    )


def answers(row: Row) -> Answers:
    """What status and verify have collected."""
    held = NodeAnswer({0: True}, {0: GOOD})
    if isinstance(row.answer, ReplicaAnswer):
        held = NodeAnswer({0: row.answer.available}, {0: row.answer})
    elif isinstance(row.answer, NotHeld):
        held = NodeAnswer({})
    elif isinstance(row.answer, NoAnswer):
        held = NodeAnswer()
    return Answers({}, {NODE: held, OTHER: NodeAnswer({0: True}, {0: GOOD})})


def on_the_page(row: Row) -> Replica:
    copy = NodePartition(P, SESSION, 5, 5, True, True, 5)
    statuses = {node: NodeStatus(Endpoint(node[:2], 2), (copy,)) for node in (NODE, OTHER)}
    return summarize(view(row), answers(row), statuses).partitions[0].replicas[0]


def operators(row: Row) -> Facts:
    """The same, as the operator has seen it."""
    told = row.answer
    says: NodeView | Unknown
    if isinstance(told, ReplicaAnswer):
        copy = NodeReplica(
            told.available,
            told.session_id,
            5,
            5,
            5,
            told.holds_low_water_mark,
            told.fault,
        )
        says = replace(answer(copy), observed_at=NOW - row.age_seconds)
    else:
        says = Unknown(told.reason) if isinstance(told, NoAnswer) else answer()
    found = facts(says={0: says}, assigned=(0, 1))
    assert isinstance(found.tree, TreeView)
    return replace(found, tree=replace(found.tree, partitions={0: metadata(row)}))


ROWS = [pytest.param(row, id=text) for text, row in TABLE.items()]
FRESH = [pytest.param(row, id=text) for text, row in TABLE.items() if not row.age_seconds]


@pytest.mark.parametrize("row", FRESH)
async def test_safety_a6_the_tools_answer_by_the_table(row: Row) -> None:
    store, meta = await store_of(row)
    change = await refused(check_change(meta, Probe(row), 0, [NODE, OTHER], [NODE, OTHER, THIRD]))
    removal = await refused(check_removal(meta, Probe(row), 0, THIRD, [NODE, OTHER]))
    for text in (change, removal):
        assert bool(text) == bool(row.reason)
        if row.listed is not None and row.reason:
            assert f"; {NODE}: {row.unasked or row.reason}" in text
    recovery = next(one for one in check(P, view(row), answers(row)) if one.check is Check.RECOVERY)
    page = on_the_page(row)
    assert recovery.passed == (page.standing is Standing.CURRENT) == (not row.reason or row.pages_pass)
    if not recovery.passed and row.answer != NoAnswer("connection refused"):
        later = isinstance(row.answer, ReplicaAnswer) and row.answer.session_id > SESSION
        assert page.reason == (NO_RECORD if later else row.reason)
        assert row.listed is None or recovery.reason == f"{NODE}: {page.reason}"
    await _forgotten(store, row)


async def _forgotten(store: MemoryStore, row: Row) -> None:
    if row.listed is None:
        with pytest.raises(UnknownReplicaError):
            await forget_replica(store, ROOT, NODE, [0], probe=Probe(row))
    elif row.intact:
        with pytest.raises(UnsafeChangeError, match="answers and holds what it should"):
            await forget_replica(store, ROOT, NODE, [0], probe=Probe(row))
    else:
        assert (await forget_replica(store, ROOT, NODE, [0], probe=Probe(row))).forgotten == (0,)


@pytest.mark.parametrize("row", ROWS)
def test_safety_a6_the_operator_answers_by_the_table(row: Row) -> None:
    found = operators(row)
    assert found.not_current(0, NODE) == row.reason
    assert replica_figures(found) == (2, 1 if row.reason else 2, 0 if row.reason else 1)
    behind = health_of(found).behind
    assert bool(behind) == bool(row.reason)
    for gate in (
        may_change(found, "change", 0, [NODE, OTHER, THIRD]),
        may_delete(found, "removal", 0, THIRD),
    ):
        assert isinstance(gate, Denied if row.reason else Allowed)
        if isinstance(gate, Denied) and row.listed is not None:
            assert f"; {NODE}: {row.reason}" in gate.blocked.text
            assert behind == f"partition 0: {NODE}: {row.reason}"
