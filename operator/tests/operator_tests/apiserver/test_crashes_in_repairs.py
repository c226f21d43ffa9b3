"""Killed at every write: a drained node, a lost disk, a lost journal, deletion that keeps the data; rotation
of certificates and authority."""

from __future__ import annotations

import pytest

from operator_tests.apiserver import stories
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.crash_points import Story, Tell, check_killed_everywhere

JOURNAL = {"storage": {"journal": {"size": "4Mi", "volume": {"size": "64Mi"}}}}
GROUPS = {"storage": {"groups": [{"name": "1", "count": 2}, {"name": "2"}, {"name": "3"}]}}
ROTATED_DAYS = 61.0
LIFETIMES = {"certificateLifetimeHours": 24 * 89, "authorityLifetimeHours": 24 * 90}
"""Both are due for renewal (two thirds have passed) and still valid after that time."""
ZOOKEEPER = {
    "images": {"server": "waltz-server:1", "storage": "waltz-storage:1", "zookeeper": "waltz-zookeeper:1"},
    "zookeeper": {"managed": {"replicas": 1, "tls": "Enabled"}},
}

STORIES = {
    "drain, replace a disk, delete": Story(
        (stories.drain(), stories.lose_disk(), stories.delete("Retain")),
        before=(stories.install(**GROUPS, tls={"mode": "Disabled"}),),
    ),
    "replace a journal": Story(
        (stories.lose_journal(),),
        before=(stories.install(replicas=3, tls={"mode": "Disabled"}, **JOURNAL),),
    ),
    "rotate certificates": Story(
        (stories.rotate(from_days_ago=ROTATED_DAYS),),
        before=(stories.install(replicas=3, tls=LIFETIMES, **ZOOKEEPER),),
        days_behind=ROTATED_DAYS,
    ),
}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_a_killed_operator_s_successor_goes_on(plane: Plane, name: str, record_property: Tell) -> None:
    check_killed_everywhere(plane, STORIES[name], record_property)
