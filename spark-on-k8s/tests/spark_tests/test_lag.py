"""The lag of a query, from what Spark reports about a trigger."""

import json
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waltz_spark import Lag, LagListener
from waltz_spark.lag import lag_of_source


def progress(end: object, latest: object, name: str | None = "balances") -> Any:
    """A progress event with one source of ours and one of somebody else."""
    text = [json.dumps(offset) if offset is not None else None for offset in (end, latest)]
    sources = [
        SimpleNamespace(endOffset=text[0], latestOffset=text[1]),
        SimpleNamespace(endOffset="12", latestOffset="13"),
    ]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="id-1", batchId=4, sources=sources))


def test_a_line_per_trigger_and_the_last_figures(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Lag] = []
    listener = LagListener(seen.append)
    with caplog.at_level(logging.INFO, "waltz_spark"):
        listener.onQueryProgress(
            progress({"0": 5, "1": 9, "cluster": "k"}, {"0": 8, "1": 9, "2": 4, "cluster": "k"})
        )
    assert caplog.messages == ["query balances, batch 4: 7 transactions behind (partition 0: 3, 2: 4)"]
    assert listener.latest["balances"].per_partition == {0: 3, 1: 0, 2: 4}
    assert [lag.total for lag in seen] == [7]
    listener.onQueryProgress(progress({"0": 8, "cluster": "k"}, {"0": 8, "cluster": "k"}, name=None))
    assert str(listener.latest["id-1"]) == "query id-1, batch 4: 0 transactions behind"


def test_each_of_two_sources_of_a_query_has_its_own_figures() -> None:
    seen: list[Lag] = []
    listener = LagListener(seen.append)
    event = progress({"0": 5, "cluster": "k"}, {"0": 8, "cluster": "k"})
    event.progress.sources += progress({"0": 1, "cluster": "k"}, {"0": 2, "cluster": "k"}).progress.sources
    listener.onQueryProgress(event)
    assert {name: lag.per_partition for name, lag in listener.latest.items()} == {
        "balances#0": {0: 3},
        "balances#2": {0: 1},
    }
    assert [(lag.query, lag.source) for lag in seen] == [("balances", 0), ("balances", 2)]
    assert str(seen[1]) == "query balances, source 2, batch 4: 1 transactions behind (partition 0: 1)"
    event.progress.sources[2].latestOffset = None  # has nothing to report
    listener.onQueryProgress(event)
    assert sorted(listener.latest) == ["balances#0", "balances#2"]


@pytest.mark.parametrize(
    ("end", "latest"),
    [
        (None, '{"0": 1, "cluster": "k"}'),
        ('{"0": 1, "cluster": "k"}', None),
        ("7", "8"),
        ("{not json", "8"),
        ('{"topic": {"0": 1}}', '{"topic": {"0": 2}}'),
        ('{"0": 1, "cluster": "k"}', '{"0": 1, "cluster": "other"}'),
    ],
)
def test_what_says_nothing_of_ours_is_passed_over(end: str | None, latest: str | None) -> None:
    assert lag_of_source("q", 1, end, latest) is None


def test_other_events_change_nothing() -> None:
    listener = LagListener()
    for event in (listener.onQueryStarted, listener.onQueryIdle, listener.onQueryTerminated):
        cast(Any, event)(SimpleNamespace())
    assert listener.latest == {}
