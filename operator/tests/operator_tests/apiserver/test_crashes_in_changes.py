"""Killed at every write: fresh install, growth, shrinking and deletion with the data; new images."""

from __future__ import annotations

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.crash_points import Story, Tell, check_killed_everywhere

PLAIN = {"tls": {"mode": "Disabled"}, "reclaimPolicy": "Delete"}

STORIES = {
    "install, grow, shrink, delete": Story(
        (
            stories.install(replicas=3, **PLAIN),
            stories.change("grow to 4", {"replicas": 4}, "1-0", "2-0", "3-0", "4-0"),
            stories.change("shrink to 3", {"replicas": 3}, "1-0", "2-0", "3-0"),
            stories.delete("Delete"),
        )
    ),
    "console on and off": Story(
        (stories.console(True), stories.console(False)),
        before=(stories.install(replicas=3, tls={"mode": "Disabled"}),),
    ),
    "roll images": Story(
        (stories.roll_storage(), stories.roll_servers()),
        before=(stories.install(replicas=3, tls={"mode": "Disabled"}),),
    ),
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_a_killed_operator_s_successor_goes_on(plane: Plane, name: str, record_property: Tell) -> None:
    check_killed_everywhere(plane, STORIES[name], record_property)
