"""A second opinion: histories in the form of an independent linearizability checker (`detangle.lin`).

Each register, each counter and each log is an object of its own; operations are taken as their callers saw
them, with their real-time order. The only thing taken from the final log is which appends without an outcome
came to be there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from detangle import lin

from tests.sim.checkers.history import AppendOp, History, Outcome, Truth
from tests.sim.checkers.log import Places, places_of
from tests.sim.checkers.violation import Violation

MAX_OPERATIONS = 400
"""Objects with more operations are cut: the first ones in the log are taken."""
BUDGET_STEPS = 20_000


class Ranked(lin.Model):
    """Operations of one object, each with its place in the order of ids: the order that is claimed to explain
    everything.

    The search tries no other, which makes it fast; real time and what callers saw must agree with it. State:
    (next place, value of the object).
    """

    name = "object"
    initial: Hashable = None

    def init(self) -> Hashable:
        """The first place, the initial value."""
        return 0, self.initial

    def step(self, state: Any, op: lin.Operation) -> tuple[bool, Any]:
        """Legal when it is next and the value is as the caller saw it."""
        (place, value), (rank, argument) = state, op.arg
        legal, value = self.apply(value, op.f, argument)
        return legal and place == rank, (place + 1, value)

    def apply(self, value: Any, name: str, argument: Any) -> tuple[bool, Any]:
        """Whether the caller can have seen this value, and the value after it."""
        raise NotImplementedError


class LogModel(Ranked):
    """One partition: `append` (id): ids are dense."""

    name, initial = "log", 0

    def apply(self, value: Any, name: str, argument: Any) -> tuple[bool, Any]:
        """The value is the next id."""
        return argument == value, value + 1


class RegisterModel(Ranked):
    """`cas` ((expected, new)) and `read` (expected), both of which a caller saw succeed."""

    name, initial = "register", -1

    def apply(self, value: Any, name: str, argument: Any) -> tuple[bool, Any]:
        """The value is the register's."""
        if name == "read":
            return argument == value, value
        expected, new = argument
        return expected == value, new


class CounterModel(Ranked):
    """`add` (n) and `read` (sum)."""

    name, initial = "counter", 0

    def apply(self, value: Any, name: str, argument: Any) -> tuple[bool, Any]:
        """The value is the sum."""
        return (argument == value, value) if name == "read" else (True, value + argument)


def check_linearizable(
    history: History, truth: Truth, max_operations: int = MAX_OPERATIONS
) -> list[Violation]:
    """`linearizable`: an object's history has no sequential explanation."""
    places = places_of(truth)
    found = []
    for (name, key), (model, calls) in _objects(history, places).items():
        calls.sort(key=lambda call: call[3])
        operations = _operations(calls[:max_operations])
        try:
            result = lin.check(operations, model, budget=BUDGET_STEPS)
        except RuntimeError:
            history.counts["linearizability searches given up"] += 1
            continue
        history.counts["objects linearizable"] += 1
        if not result.ok:
            found.append(Violation("linearizable", f"{name} {key}: {_shorten(result.explain())}"))
    return found


Call = tuple[AppendOp, str, Any, int]
"""The append, the name of the operation on the object, its argument, the id its caller got."""


def _objects(history: History, places: Places) -> dict[tuple[str, Any], tuple[lin.Model, list[Call]]]:
    objects: dict[tuple[str, Any], tuple[lin.Model, list[Call]]] = {}

    def add(name: str, key: Any, model: lin.Model, call: Call) -> None:
        objects.setdefault((name, key), (model, []))[1].append(call)

    for op in history.appends:
        if op.outcome is Outcome.FAILED or (op.outcome is not Outcome.COMMITTED and op.uid not in places):
            continue
        told = places.get(op.uid, (op.partition, -1))[1] if op.transaction_id is None else op.transaction_id
        add("log", op.partition, LogModel(), (op, "append", told, told))
        body = op.body
        if op.workload == "registers":
            key = (op.partition, body["register"])
            if "old" in body:
                add("register", key, RegisterModel(), (op, "cas", (body["old"], op.uid), told))
            else:
                add("register", key, RegisterModel(), (op, "read", body["saw"], told))
        elif op.workload == "counters":
            name, argument = ("add", body["add"]) if "add" in body else ("read", body["sum"])
            add("counter", (op.partition, body["counter"]), CounterModel(), (op, name, argument, told))
    return objects


def _operations(calls: Sequence[Call]) -> list[lin.Operation]:
    """Their calls and returns, as numbers of events. What was given no outcome never returned."""
    operations = []
    for rank, (op, name, argument, _) in enumerate(calls):
        one = lin.Operation(rank, op.process, name, (rank, argument), op.invoked, op.invoked_at)
        if op.outcome is Outcome.COMMITTED:
            one.status, one.ret, one.ret_time = lin.OK, op.completed, op.completed_at
        else:
            one.status = lin.INFO
        operations.append(one)
    return operations


def _shorten(text: str, lines: int = 12) -> str:
    kept = text.splitlines()
    return " / ".join(kept[:1] + kept[-lines:])
