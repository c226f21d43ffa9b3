"""Names, kinds, labels and help of every metric follow the conventions of Prometheus, as promtool reads
them. Whole pages of real processes: `tests/integration/test_monitoring.py`."""

from __future__ import annotations

import pytest

from tests.repo.promtool import check_metrics, needs_promtool
from tests.repo.test_metrics_doc import Row, all_rows


def page(rows: list[Row]) -> str:
    """One sample of each."""
    return "".join(map(_family, rows))


def _family(row: Row) -> str:
    labels = ",".join(f'{label}="x"' for label in row.labels.replace(" or none", "").split(", ") if label)
    head = f"# HELP {row.name} {row.help}\n# TYPE {row.name} {row.kind}\n"
    if row.kind != "histogram":
        return f"{head}{row.name}{{{labels}}} 1\n"
    bucket = f'{labels},le="+Inf"'.lstrip(",")
    return f"{head}{row.name}_bucket{{{bucket}}} 1\n{row.name}_sum{{{labels}}} 1\n{row.name}_count{{{labels}}} 1\n"


@needs_promtool
@pytest.mark.parametrize("role", all_rows())
def test_promtool_has_nothing_to_say(role: str) -> None:
    check_metrics(page(all_rows()[role]))


@needs_promtool
def test_promtool_would_say_something() -> None:
    for row in (
        Row("waltz_server_appends", "counter", "", "Appends."),
        Row("waltz_server_wait_milliseconds", "gauge", "", "Time."),
        Row("waltz_server_waitSeconds", "gauge", "", "Time."),
        Row("waltz_server_connections", "gauge", "", ""),
    ):
        with pytest.raises(AssertionError):
            check_metrics(page([row]))
