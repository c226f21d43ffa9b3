"""When a copy of the records in ZooKeeper is due, and which copies are kept."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from operator_tests.plan.cluster import NOW, facts
from operator_tests.resources.clusters import UID, cluster
from waltz_admin.found_tree import NoTree
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.metadata import CLUSTER_UID
from waltz_operator.api.parts import ZooKeeperExport
from waltz_operator.model.desired import created_key
from waltz_operator.model.snapshot import Snapshot, Unknown
from waltz_operator.plan.cluster import plan
from waltz_operator.plan.zookeeper_export import MAX_BYTES, Exports, export_step, is_due, last_made, overdue

HOUR = 3600.0
DAILY = ZooKeeperExport()


def kept(present: Exports, copy: bytes, now: float, **wanted: int) -> Exports:
    """The Secret after one more copy."""
    step = export_step(cluster(), ZooKeeperExport(**wanted), present, copy, now)
    assert step is not None
    data = {key: base64.b64decode(value) for key, value in step.body["data"].items()}
    return Exports(data, "1")


def test_one_is_due_after_the_interval_and_of_our_own_tree_only() -> None:
    well = replace(facts(), now=100 * HOUR)
    made = kept(Exports(version="1"), b"x", 50 * HOUR)
    assert last_made(made.made, 100 * HOUR) == 50 * HOUR
    assert is_due(well, DAILY, Exports())
    assert is_due(well, DAILY, made)
    assert not is_due(replace(well, now=73 * HOUR), DAILY, made)
    assert not is_due(well, None, Exports())
    assert not is_due(replace(well, tree=Unknown("")), DAILY, Exports())
    assert not is_due(replace(well, tree=NoTree()), DAILY, Exports())
    strange = replace(well.memory, cluster_key=created_key("another"))
    assert not is_due(replace(well, memory=strange), DAILY, Exports())
    for wish in ({"paused": True}, {"deleting": True}):
        assert not is_due(replace(well, desired=replace(well.desired, **wish)), DAILY, Exports())  # type: ignore[arg-type]


def test_after_one_that_failed_there_is_a_pause() -> None:
    now = 100 * HOUR
    well = replace(facts(), now=now)
    assert not is_due(well, DAILY, Exports(failed=now))
    assert not is_due(well, DAILY, Exports(failed=now - 599))
    assert is_due(well, DAILY, Exports(failed=now - 600))
    assert is_due(well, DAILY, Exports(failed=now + 1)), "the clock was wrong then"


def test_the_newest_are_kept_and_all_fit() -> None:
    present = Exports(version="1")
    for hour in range(1, 10):
        present = kept(present, bytes([hour]), hour * HOUR, keep=3)
    assert sorted(present.copies.values()) == [b"\x07", b"\x08", b"\x09"]
    large = kept(present, b"x" * MAX_BYTES, 10 * HOUR, keep=3)
    assert [len(copy) for copy in large.copies.values()] == [MAX_BYTES], "one alone, rather than none"
    assert export_step(cluster(), DAILY, present, b"x" * (MAX_BYTES + 1), 10 * HOUR) is None


def test_the_secret_is_made_empty_and_stays_with_the_volumes() -> None:
    """What an object is created with is not taken out by leaving it out later."""
    step = export_step(cluster(), DAILY, Exports(), b"x", NOW)
    assert step is not None
    assert step.body["data"] == {}
    assert step.body["metadata"]["resourceVersion"] == ""
    for policy in ("Retain", "Delete"):
        step = export_step(cluster({"reclaimPolicy": policy}), DAILY, Exports(version="1"), b"x", NOW)
        assert step is not None
        assert "ownerReferences" not in step.body["metadata"], "garbage collection is to delete no data"
        assert step.body["metadata"]["annotations"] == {CLUSTER_UID: UID}


@pytest.mark.parametrize(("hours", "late"), [(24, False), (47, False), (48, True), (500, True)])
def test_it_is_overdue_after_two_intervals(hours: int, late: bool) -> None:
    now = replace(facts(), now=1000 * HOUR)
    assert bool(overdue(now, DAILY, [(1000 - hours) * HOUR])) is late
    assert not overdue(now, None, [1.0])
    assert bool(overdue(now, DAILY, [], (1000 - hours) * HOUR)) is late, "not even the first one was made"
    assert not overdue(now, DAILY, [])


@pytest.mark.parametrize("hours", [1, 24 * 365])
def test_a_copy_from_the_future_keeps_no_other_one_from_being_made(hours: int) -> None:
    """The clock was ahead when it was made; no condition said so, for as long."""
    now = 1000 * HOUR
    well = replace(facts(), now=now)
    strange = kept(Exports(version="1"), b"x", now + hours * HOUR)
    assert is_due(well, DAILY, strange)
    assert overdue(well, DAILY, strange.made, now - 48 * HOUR).startswith("the last export of the records")
    assert last_made((*strange.made, 5.0), now) == 5.0
    both = kept(strange, b"y", now)
    assert sorted(both.copies.values()) == [b"x", b"y"], "it may be of use while there are few"
    assert not is_due(replace(well, now=now + 0.5), DAILY, both)
    assert not overdue(well, DAILY, both.made, now - 48 * HOUR)


def test_copies_from_the_future_are_dropped_first() -> None:
    present = Exports(version="1")
    for hour in (1, 2, 3000, 3001):
        present = kept(present, bytes([hour % 256]), hour * HOUR, keep=4)
    present = kept(present, b"now", 5 * HOUR, keep=4)
    assert sorted(present.copies.values()) == [b"\x01", b"\x02", b"now", b"\xb9"]
    present = kept(present, b"later", 6 * HOUR, keep=4)
    assert sorted(present.copies.values()) == [b"\x01", b"\x02", b"later", b"now"]
    present = kept(present, b"last", 7 * HOUR, keep=4)
    assert sorted(present.copies.values()) == [b"\x02", b"last", b"later", b"now"]


def test_the_status_has_the_time_of_the_newest_copy_that_counts() -> None:
    snapshot = Snapshot(
        cluster(), Unknown(""), Unknown(""), {}, {}, 1000 * HOUR, exported_at=(HOUR, 2000 * HOUR)
    )
    status = plan(snapshot).status
    assert isinstance(status, WaltzClusterStatus)
    assert status.zookeeper.exported_at == "1970-01-01T01:00:00Z"
