"""Filters that Spark offers to the source: what part of them narrows the read, exactly. Pure but for Spark's
own classes.

A condition on `partition` or `transaction_id` narrows the ranges; one on `header` decides before a
payload is fetched. What is taken over is taken over exactly, so Spark need not check again; everything else
is left to Spark. Spark's classes are known by their names: Spark 4.0 has none of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from waltz_spark.planning import Range

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_COMPARISONS: Mapping[str, str] = {
    "EqualTo": "==",
    "EqualNullSafe": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
}
_COLUMNS = ("partition", "transaction_id", "header")
_NEVER_NULL = frozenset((name,) for name in (*_COLUMNS, "client_id", "generation", "sequence"))
_TESTS: Mapping[str, Callable[[int, Any], bool]] = {
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda value, among: value in among,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`operation` (with `negated`) of a number and `operand`; picklable."""

    operation: str
    operand: Any
    negated: bool

    def holds(self, value: int) -> bool:
        """Whether it holds for a number."""
        return _TESTS[self.operation](value, self.operand) != self.negated


@dataclass(frozen=True, slots=True)
class Selection:
    """What of the log is wanted: conditions on partitions, on transaction ids (as the span that holds them),
    on headers."""

    partition: tuple[Condition, ...] = ()
    header: tuple[Condition, ...] = ()
    first: int = 0
    last: int | None = None

    def ranges(self, ranges: Iterable[Range]) -> list[Range]:
        """What is left of the ranges."""
        found = []
        for one in ranges:
            first = max(one.first, self.first)
            last = one.last if self.last is None else min(one.last, self.last)
            if first <= last and all(condition.holds(one.partition) for condition in self.partition):
                found.append(Range(one.partition, first, last))
        return found

    def header_test(self, among: frozenset[int] | None = None) -> Callable[[int], bool] | None:
        """A function that decides whether a header is read; None when all are. `among`: the headers that the
        option `headers` names."""
        conditions = self.header
        if not conditions:
            return None if among is None else among.__contains__
        return lambda header: (
            (among is None or header in among) and all(condition.holds(header) for condition in conditions)
        )


def select(filters: Sequence[Filter]) -> tuple[Selection, list[Filter]]:
    """The selection that the filters make, and those Spark still has to apply."""
    partition: list[Condition] = []
    header: list[Condition] = []
    first, last = 0, None
    left: list[Filter] = []
    for one in filters:
        if type(one).__name__ == "IsNotNull" and getattr(one, "attribute", None) in _NEVER_NULL:
            continue
        found = _condition(one)
        if found is None:
            left.append(one)
            continue
        column, condition = found
        if column == "transaction_id":
            span = _span(condition)
            if span is None:
                left.append(one)
                continue
            first = max(first, span[0])
            if span[1] is not None:
                last = span[1] if last is None else min(last, span[1])
        else:
            (partition if column == "partition" else header).append(condition)
    return Selection(tuple(partition), tuple(header), first, last), left


def _condition(one: Filter) -> tuple[str, Condition] | None:
    """The column and the condition on it, when the filter is one on a number this source understands."""
    negated = type(one).__name__ == "Not"
    inner = getattr(one, "child", one) if negated else one
    operation = _COMPARISONS.get(type(inner).__name__)
    attribute: tuple[str, ...] = getattr(inner, "attribute", ())
    value = getattr(inner, "value", None)
    if operation is None or len(attribute) != 1 or attribute[0] not in _COLUMNS:
        return None
    if operation == "in":
        values = list(value) if isinstance(value, Iterable) else None
        if values is None or not all(_is_number(each) for each in values):
            return None
        return attribute[0], Condition("in", frozenset(values), negated)
    return (attribute[0], Condition(operation, value, negated)) if _is_number(value) else None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _span(condition: Condition) -> tuple[int, int | None] | None:
    """The ids a condition allows, as a span with no end for "and all after"; None when they are not one
    span."""
    value, operation = condition.operand, condition.operation
    if condition.negated:
        operation = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}.get(operation, "")
    match operation:
        case "==":
            return value, value
        case ">":
            return value + 1, None
        case ">=":
            return value, None
        case "<":
            return 0, value - 1
        case "<=":
            return 0, value
        case _:
            return None
