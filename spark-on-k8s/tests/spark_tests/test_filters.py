"""Filters: what is taken over narrows exactly as Spark would, and everything else is given back."""

import pickle

import pyspark.sql.datasource
import pytest
from hypothesis import given
from hypothesis import strategies as st

if not hasattr(pyspark.sql.datasource, "Filter"):
    pytest.skip("filters are offered since Spark 4.1", allow_module_level=True)

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from waltz_spark.filters import select
from waltz_spark.planning import Range

numbers = st.integers(-1, 12)
columns = st.sampled_from([("partition",), ("transaction_id",), ("header",)])
plain: st.SearchStrategy[Filter] = st.one_of(
    *(
        st.builds(kind, columns, numbers)
        for kind in (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ),
    st.builds(lambda column, among: In(column, tuple(among)), columns, st.lists(numbers, max_size=4)),
)
filters = st.lists(plain | plain.map(Not), max_size=4)
ROWS = [(partition, i, i % 5) for partition in range(4) for i in range(11)]


def holds(one: Filter, row: tuple[int, int, int]) -> bool:
    """What Spark does with a filter."""
    if isinstance(one, Not):
        return not holds(one.child, row)
    value = dict(zip(("partition", "transaction_id", "header"), row, strict=True))[one.attribute[0]]  # type: ignore[attr-defined]
    match one:
        case EqualTo():
            return bool(value == one.value)
        case GreaterThan():
            return bool(value > one.value)
        case GreaterThanOrEqual():
            return bool(value >= one.value)
        case LessThan():
            return bool(value < one.value)
        case LessThanOrEqual():
            return bool(value <= one.value)
        case In():
            return value in one.value
    raise AssertionError(one)


@given(filters)
def test_a_selection_and_what_is_left_are_the_filters(given_filters: list[Filter]) -> None:
    selection, left = select(given_filters)
    selection = pickle.loads(pickle.dumps(selection))
    test = selection.header_test() or (lambda header: True)
    ranges = selection.ranges([Range(partition, 0, 10) for partition in range(4)])
    read = [
        (one.partition, i, i % 5) for one in ranges for i in range(one.first, one.last + 1) if test(i % 5)
    ]
    assert [row for row in read if all(holds(one, row) for one in left)] == [
        row for row in ROWS if all(holds(one, row) for one in given_filters)
    ]
    assert all(any(one is other for other in given_filters) for one in left)


def test_what_is_not_understood_is_given_back() -> None:
    foreign: list[Filter] = [
        EqualTo(("client_id",), 3),
        EqualTo(("header", "x"), 3),
        EqualTo(("header",), "3"),
        EqualTo(("header",), True),
        In(("transaction_id",), (1, 2)),
        Not(EqualTo(("transaction_id",), 1)),
        IsNull(("header",)),
        IsNotNull(("data",)),
        StringContains(("data",), "x"),
    ]
    selection, left = select(foreign)
    assert left == foreign
    assert selection.header_test() is None
    assert select([IsNotNull(("header",)), IsNotNull(("transaction_id",))])[1] == []
