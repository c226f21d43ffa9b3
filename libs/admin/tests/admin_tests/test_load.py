"""The load of a server, divided among its partitions."""

from __future__ import annotations

import json

import pytest

from waltz_admin.load import PartitionRates, ServerLoad, costs, parse_load
from waltz_admin.reports import parse_report
from waltz_protocol.types import Endpoint

LOAD = {
    "measured_seconds": 90.5,
    "cpu": [0.5, 0.4, 0.2],
    "partitions": {
        "3": [[300, 100, 50], [0, 0, 0], [2000, 0, 0]],
        "7": [[0, 0, 0], [16384 * 100, 0, 0], [0, 0, 0]],
    },
}


def test_the_processor_is_divided_by_appends_bytes_and_what_was_sent() -> None:
    found = parse_load(LOAD)
    assert found is not None
    assert (found.measured_seconds, found.cores(1), found.cores(15)) == (90.5, 0.5, 0.2)
    assert found.of_partitions(1) == pytest.approx({3: 0.4, 7: 0.1})
    assert found.of_partitions(5) == pytest.approx({3: 0.4, 7: 0.0})
    assert found.rates[3][0] == PartitionRates(300, 0, 2000)


def test_what_a_process_uses_at_rest_is_no_partitions() -> None:
    """As measured: two partitions of 495 appends/s, and one of two appends/s on a server that is at rest."""
    busy = ServerLoad(90.0, (0.114,) * 3, {0: (PartitionRates(495),) * 3, 1: (PartitionRates(495),) * 3})
    quiet = ServerLoad(90.0, (0.059,) * 3, {2: (PartitionRates(2),) * 3})
    assert quiet.of_partitions(1)[2] == pytest.approx(0.059)
    assert costs([busy, quiet, ServerLoad(9.0, (0.02,) * 3)], 1) == pytest.approx(
        {0: 0.057, 1: 0.057, 2: 0.114 * 2 / 990}
    )
    assert costs([], 5) == {}


def test_where_nothing_is_done_nothing_is_divided() -> None:
    assert ServerLoad(1.0, (0.1, 0.1, 0.1)).of_partitions(5) == {}
    assert ServerLoad(1.0, (0.1,) * 3, {1: (PartitionRates(),) * 3}).of_partitions(1) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"measured_seconds": None},
        {"cpu": [0.5]},
        {"cpu": [0.5, -1, 0]},
        {"partitions": []},
        {"partitions": {"x": [[0] * 3] * 3}},
        {"partitions": {"1": [[0] * 3] * 2}},
        {"partitions": {"1": [[0] * 3, [0] * 3, "no"]}},
    ],
)
def test_what_is_something_else_is_no_load(changed: dict[str, object]) -> None:
    """A newer server may report it otherwise: it counts as one that does not report it."""
    assert parse_load({**LOAD, **changed}) is None


def test_a_report_has_it_where_it_was_asked_for() -> None:
    server = Endpoint("s", 1)
    assert parse_report(1, server, "{}").load is None
    found = parse_report(1, server, json.dumps({"format": 1, "load": LOAD})).load
    assert found == parse_load(LOAD)
