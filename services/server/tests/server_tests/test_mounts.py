"""The fence against stale connections."""

from waltz_server.partition.mounts import MountRegistry
from waltz_testkit.client_peers import FakeClient


def test_first_mount_is_valid_and_others_are_not() -> None:
    mounts = MountRegistry()
    client, stranger = FakeClient(1), FakeClient(1)
    assert mounts.valid(client) is None
    mount = mounts.offer(client, 3)
    assert mount is not None
    assert mounts.valid(client) is mount
    assert mounts.valid(stranger) is None


def test_newer_connection_or_generation_takes_over() -> None:
    mounts = MountRegistry()
    old, newer, newest = FakeClient(1, seq_num=0), FakeClient(1, seq_num=1), FakeClient(1, seq_num=0)
    mounts.offer(old, 3)
    taken = mounts.offer(newer, 3)
    assert mounts.valid(newer) is taken
    assert mounts.valid(old) is None
    assert mounts.offer(old, 3) is None
    higher = mounts.offer(newest, 4)
    assert mounts.valid(newest) is higher
    assert mounts.offer(newer, 3) is None


def test_client_server_13_10_equal_numbers_do_not_share_the_place() -> None:
    """The reference compares numbers only, so a second connection with equal ones is let through or swallowed."""
    mounts = MountRegistry()
    first, second = FakeClient(1, seq_num=0), FakeClient(1, seq_num=0)
    mounts.offer(first, 3)
    assert mounts.offer(second, 3) is None
    assert mounts.valid(second) is None
    mounts.remove(first)
    assert mounts.offer(second, 3) is not None


def test_same_connection_may_mount_again() -> None:
    mounts = MountRegistry()
    client = FakeClient(1)
    mount = mounts.offer(client, 3)
    assert mounts.offer(client, 5) is mount
    assert mount is not None
    assert mount.generation == 5
    assert mounts.offer(client, 2) is mount
    assert mount.generation == 5


def test_a_replaced_connection_that_goes_does_not_take_the_new_one_along() -> None:
    mounts = MountRegistry()
    old, new = FakeClient(1, seq_num=0), FakeClient(1, seq_num=1)
    mounts.offer(old, 3)
    mount = mounts.offer(new, 3)
    mounts.remove(old)
    assert mounts.valid(new) is mount


def test_client_server_13_09_passing_the_flush_fences_everything_replaced() -> None:
    mounts = MountRegistry()
    connections = [FakeClient(1, seq_num=n) for n in range(3)]
    first, second, third = (mounts.offer(c, 1) for c in connections)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [mount.fenced for mount in (first, second, third)] == [False, False, False]
    third.fence_replaced()
    assert [mount.fenced for mount in (first, second, third)] == [True, True, False]
