"""The fence against stale connections."""

from waltz_protocol.connection_number import COUNTER_BITS
from waltz_protocol.types import ReqId
from waltz_server.partition.mounts import MAX_OBJECTS, MountRegistry
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
    """The reference compares numbers only, so a second connection with equal ones is let through or
    swallowed."""
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


OURS, OTHER, THIRD = (number << COUNTER_BITS for number in (5, 9, 7))
"""First connection numbers of three client objects."""


def test_safety_d10_objects_under_one_client_id_have_their_places_side_by_side() -> None:
    """Two living clients were given one id, or somebody names another's: neither keeps the other out."""
    mounts = MountRegistry()
    first, second = FakeClient(1, seq_num=OURS), FakeClient(1, seq_num=OTHER)
    mine = mounts.offer(first, 3, 100)
    theirs = mounts.offer(second, 2**31 - 1, 100)
    assert mine is not None
    assert theirs is not None
    assert mounts.valid(first) is mine
    assert mounts.valid(second) is theirs
    assert (mine.elders, theirs.elders) == ((), (mine,))
    assert second.misdeeds == ["another living client has the same client id"]
    reconnected = FakeClient(1, seq_num=OURS + 1)
    again = mounts.offer(reconnected, 3, 200)
    assert again is not None
    assert (again.replaced, again.elders, theirs.elders) == (mine, (), (again,))
    mounts.remove(reconnected)
    assert theirs.elders == ()
    mounts.remove(second)
    assert len(mounts) == 0
    assert mounts._places == {}


def test_safety_d10_a_later_object_may_not_use_the_request_ids_of_an_earlier_one() -> None:
    """Not even numbers a little behind: they may be on their way. The range wraps around as the counter
    does."""
    mounts = MountRegistry()
    elder, younger = FakeClient(1, seq_num=OURS), FakeClient(1, seq_num=OTHER)
    mounts.offer(elder, 3, 2**32 - 10)
    mount = mounts.offer(younger, 3, 1)
    assert mount is not None

    def may_use(seq_num: int) -> bool:
        return mount.may_use(ReqId(1, 3, 0, (seq_num + 2**31) % 2**32 - 2**31).pack())

    for seq_num in (2**32 - 10, 2**32 - 1, 0, 1, 5000, 2**29 - 11, 2**32 - 10 - 2**20):
        assert not may_use(seq_num), seq_num
    for seq_num in (2**29 - 10, 2**30, 2**31, 2**32 - 11 - 2**20):
        assert may_use(seq_num), seq_num
    mounts.offer(elder, 3, 2**30)
    assert may_use(0)
    assert not may_use(2**30)


def test_safety_d10_the_third_object_may_use_neither_the_request_ids_of_the_first_nor_of_the_second() -> None:
    mounts = MountRegistry()
    for number, first in enumerate((0, 2**30)):
        mounts.offer(FakeClient(1, seq_num=number << COUNTER_BITS), 3, first)
    mount = mounts.offer(FakeClient(1, seq_num=2 << COUNTER_BITS), 3, 2**31)
    assert mount is not None
    usable = [mount.may_use(bytes(12) + seq_num.to_bytes(4, "big")) for seq_num in (1, 2**30 + 1, 2**31)]
    assert usable == [False, False, True]


def test_a_client_id_has_room_for_a_few_objects() -> None:
    mounts = MountRegistry()
    clients = [FakeClient(1, seq_num=number << COUNTER_BITS) for number in range(MAX_OBJECTS)]
    assert all(mounts.offer(client, 3) for client in clients)
    late = FakeClient(1, seq_num=OTHER)
    assert mounts.offer(late, 3) is None
    assert late.misdeeds == [f"refused, {MAX_OBJECTS} other clients use this client id"]
    assert mounts.offer(FakeClient(2, seq_num=OTHER), 3) is not None
    mounts.remove(clients[2])
    assert mounts.offer(late, 3) is not None


def test_safety_d10_a_replaced_connection_that_is_alive_gets_its_place_back() -> None:
    """Clients of 0.13.2 have no number of their own: whoever names a larger one takes over, as a reconnecting
    client must. But its own client would not answer on the connection it has left."""
    mounts = MountRegistry()
    victim, thief = FakeClient(1, seq_num=0), FakeClient(1, seq_num=2**27 - 1)
    mounts.offer(victim, 3, now=10.0)
    stolen = mounts.offer(thief, 3, now=20.0)
    assert mounts.valid(thief) is stolen
    for now in (
        20.0,
        20.1,
        20.2,
        20.9,
    ):  # a network may deliver old mounts together; a client answers, after 500 ms each
        assert mounts.offer(victim, 3, now=now) is None
    mine = mounts.offer(victim, 3, now=21.0)
    assert mine is not None
    assert mounts.valid(victim) is mine
    assert mounts.valid(thief) is None
    assert mine.replaced is stolen
    assert "taken the client id" in thief.misdeeds[0]
    assert mounts.offer(thief, 9, now=30.0) is None
    assert mounts.offer(FakeClient(1, seq_num=2**27 - 1), 9, now=40.0) is None
    mounts.remove(thief)
    mounts.remove(victim)
    assert mounts.offer(FakeClient(1, seq_num=1), 3, now=50.0) is not None


def test_a_replaced_connection_that_goes_silent_or_away_stays_replaced() -> None:
    mounts = MountRegistry()
    old, new, newest = (FakeClient(1, seq_num=number) for number in range(3))
    mounts.offer(old, 3, now=10.0)
    mounts.offer(new, 3, now=20.0)
    assert mounts.offer(old, 3, now=30.0) is None  # one mount may have been on its way for long
    assert mounts.offer(newest, 3, now=30.0) is not None
    assert mounts.offer(old, 3, now=40.0) is None
    mounts.remove(new)
    for now in (50.0, 60.0, 70.0, 80.0):
        assert mounts.offer(new, 3, now=now) is None
    assert mounts.valid(newest) is not None


def test_a_place_goes_with_its_connection_whatever_else_used_the_id() -> None:
    mounts = MountRegistry()
    one, other = FakeClient(1, seq_num=OURS), FakeClient(1, seq_num=THIRD)
    mounts.offer(one, 3)
    mounts.offer(other, 3)
    mounts.remove(FakeClient(1, seq_num=OTHER))
    mounts.remove(FakeClient(2, seq_num=OURS))
    mounts.remove(other)
    mounts.remove(other)
    assert mounts.valid(other) is None
    assert mounts.valid(one) is not None
    mounts.remove(one)
    assert (len(mounts), mounts._places) == (0, {})
