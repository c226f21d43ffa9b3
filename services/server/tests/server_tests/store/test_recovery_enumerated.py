"""Every small recovery, against a brute-force oracle: an acknowledged record is never lost, nothing
undecidable is resolved."""

from __future__ import annotations

import itertools

import pytest

from server_tests.store.model import (
    Node,
    acknowledged,
    answer,
    could_be_acknowledged,
    metadata,
    run_until_stuck,
    state,
    stream,
    subsets,
)
from waltz_server.store.recovery import Recovery
from waltz_server.store.recovery_steps import Condition

BASE = 1  # resolved when session 5 began: records 0 and 1
TOP = 3


def voter_node(mark: int) -> Node:
    return Node(stream("s5", 0, mark), session=5, lwm=BASE, local_lwm=BASE)


def closed_node() -> Node:
    return Node([*stream("s5", 0, BASE), "junk:2"], session=4, lwm=0, local_lwm=0)


def world(marks: tuple[int, ...], closed: int) -> tuple[dict[str, Node], Recovery]:
    """Voters with the given marks, then `closed` replicas that dropped out of session 4 with closing mark
    BASE."""
    names = "ABCDE"[: len(marks) + closed]
    nodes = {n: voter_node(m) for n, m in zip(names, marks, strict=False)}
    states = [state(n, 5) for n in nodes]
    for name in names[len(marks) :]:
        nodes[name] = closed_node()
        states.append(state(name, 4, BASE))
    recovery = Recovery(partition_id=0, session_id=6, replicas=list(names), metadata=metadata(6, *states))
    return nodes, recovery


def check_one(
    marks: tuple[int, ...], closed: int, absent: tuple[str, ...], lost: tuple[str, ...], order: str
) -> None:
    nodes, recovery = world(marks, closed)
    names = list(nodes)
    quorum = len(names) // 2 + 1
    truth = acknowledged(marks, quorum)
    voters = names[: len(marks)]
    for name in lost:
        nodes[name].wipe()
    present = [n for n in order if n not in absent]
    for name in present:
        answer(recovery, nodes, name)
        run_until_stuck(recovery, nodes, present, 6)
    before_copying = recovery.resolved
    recovery.gather_over()
    run_until_stuck(recovery, nodes, present, 6)
    case = f"marks={marks} closed={closed} absent={absent} lost={lost} order={order}"
    hidden = [n for n in voters if n in absent or n in lost]
    seen = [m for n, m in zip(voters, marks, strict=True) if n not in hidden]
    possible = could_be_acknowledged(seen, len(hidden), quorum, TOP + 1)
    if before_copying is not None:
        assert before_copying >= possible, f"resolved something undecidable: {case}"
    if recovery.resolved is not None:
        assert recovery.resolved >= possible, f"resolved below what could be acknowledged: {case}"
        assert recovery.resolved >= truth, f"lost an acknowledged record: {case}"
        for name in recovery.recovered:
            assert nodes[name].log == stream("s5", 0, recovery.resolved), case
        assert len(recovery.recovered) == len(present), f"a present replica was not recovered: {case}"
    else:
        assert not recovery.recovered
    old_present = [n for n in present if n not in lost]
    if len(old_present) >= quorum and len(seen) > 0 and max(seen) >= possible:
        assert recovery.resolved is not None, f"decidable, but not decided: {case} {recovery.condition()}"


@pytest.mark.parametrize("closed", [0, 1])
def test_three_replicas_every_case(closed: int) -> None:
    names = "ABC"
    voters = 3 - closed
    for marks in itertools.product(range(BASE, TOP + 1), repeat=voters):
        for absent in subsets(names):
            for lost in subsets([n for n in names[:voters] if n not in absent]):
                for order in itertools.permutations(names):
                    check_one(marks, closed, absent, lost, "".join(order))


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_five_replicas_every_case(closed: int) -> None:
    names = "ABCDE"
    voters = 5 - closed
    for marks in itertools.product(range(BASE, TOP + 1), repeat=voters):
        if list(marks) != sorted(marks, reverse=True):
            continue  # voters are interchangeable
        for absent in subsets(names):
            for lost in subsets([n for n in names[:voters] if n not in absent]):
                if len(absent) + len(lost) > 3:
                    continue  # nothing can be decided; the three-replica cases cover it
                for order in ("ABCDE", "EDCBA") if len(lost) < 2 else ("CADBE",):
                    check_one(marks, closed, absent, lost, order)


def check_two_sessions(
    marks: tuple[int, ...], first_present: str, steps: int, second_present: str, wiped: str
) -> int:
    """Session 6 is interrupted after `steps` steps (never listed), then one disk may be lost, then session 7
    recovers."""
    nodes, recovery = world(marks, 3 - len(marks))
    quorum = 2
    truth = acknowledged(marks, quorum)
    for name in first_present:
        answer(recovery, nodes, name)
    recovery.gather_over()
    taken = run_until_stuck(recovery, nodes, first_present, 6, limit=steps)
    for name in wiped:
        nodes[name].wipe()
    old = [state(n, 5) if i < len(marks) else state(n, 4, BASE) for i, n in enumerate(nodes)]
    again = Recovery(partition_id=0, session_id=7, replicas=list(nodes), metadata=metadata(7, *old))
    for name in second_present:
        answer(again, nodes, name)
    again.gather_over()
    run_until_stuck(again, nodes, second_present, 7)
    case = f"{marks=} {first_present=} {steps=} {second_present=} {wiped=}"
    if again.resolved is not None:
        assert again.resolved >= truth, case
        for name in again.recovered:
            assert nodes[name].log == stream("s5", 0, again.resolved), case
    if not wiped and len(second_present) == 3:
        assert len(again.recovered) == 3, f"all there, but stuck: {case} {again.condition()}"
    return taken


def test_interrupted_recovery_followed_by_another() -> None:
    worlds = [marks for voters in (2, 3) for marks in itertools.product(range(BASE, TOP + 1), repeat=voters)]
    for marks, first in itertools.product(worlds, ("AB", "AC", "BC", "ABC")):
        for steps in range(30):
            taken = 0
            for second in ("AB", "AC", "BC", "ABC"):
                for wiped in ("", "A", "C"):
                    taken = check_two_sessions(marks, first, steps, second, wiped)
            if taken < steps:
                break  # the first session had nothing left to do


def test_recovery_goes_on_with_appends_and_the_next_one_keeps_them() -> None:
    """A chain of sessions: whoever was listed votes, everybody else is cut, no record acknowledged is ever
    lost."""
    for plan in itertools.product(["ABC", "AB", "BC", "AC"], repeat=3):
        nodes = {n: Node() for n in "ABC"}
        current = metadata(-1)
        truth: list[str] = []
        for number, present in enumerate(plan):
            session = number + 1
            current = type(current)(1, session, current.replicas)
            recovery = Recovery(partition_id=0, session_id=session, replicas=list("ABC"), metadata=current)
            for name in present:
                answer(recovery, nodes, name)
            recovery.gather_over()
            run_until_stuck(recovery, nodes, present, session)
            if recovery.resolved is None:
                assert recovery.condition()[0] in (Condition.UNDECIDABLE, Condition.NO_QUORUM)
                continue
            resolved = recovery.resolved
            assert resolved >= len(truth) - 1
            assert all(nodes[n].log[: len(truth)] == truth for n in recovery.recovered)
            current = recovery.metadata_after(current)
            recovery.metadata_written(current)
            assert recovery.complete
            listed = recovery.recovered
            for ahead, name in enumerate(listed):  # voters store different amounts of this session
                nodes[name].log += stream(f"s{session}", resolved + 1, resolved + 2 + ahead)
            mark = acknowledged([nodes[n].max_txid for n in listed], 2)
            truth = max((nodes[n].log for n in listed), key=len)[: mark + 1]
