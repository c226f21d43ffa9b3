"""Ids continue from the machine's clock in a rebuild: a clock before every release gives them out twice."""

from datetime import UTC, datetime

import pytest

from waltz_tools.cli import zk_tree
from waltz_tools.errors import ToolError


@pytest.mark.parametrize("year", [1970, 2020])
def test_a_clock_before_every_release_is_refused(year: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(year, 1, 1, 0, 1, tzinfo=UTC)

    monkeypatch.setattr(zk_tree, "datetime", Clock)
    with pytest.raises(ToolError, match="clock"):
        zk_tree._first_number(None)
