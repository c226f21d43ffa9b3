"""The session fence, alone: every combination of the permission rules."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from waltz_storage.service.fence import SESSION_REACH, Fence


@given(st.lists(st.integers(-1, 50)))
def test_safety_b1_fence_only_rises(sessions: list[int]) -> None:
    fence = Fence(3)
    highest = 3
    for session_id in sessions:
        assert fence.arrive(session_id, 3) == (session_id > highest)
        highest = max(highest, session_id)
        assert fence.session_id == highest


def test_safety_b1_permission_rules() -> None:
    """Offline: unavailable and exactly the persisted session. Otherwise: available and exactly the highest
    fence."""
    sessions = (3, 5, 7, 9)
    for session_id, fenced, durable, persisted, offline, available in product(
        sessions, sessions, sessions, sessions, (False, True), (False, True)
    ):
        refusal = Fence(fenced).refusal(
            session_id,
            offline=offline,
            available=available,
            persisted_session_id=persisted,
            durable_session_id=durable,
        )
        if offline:
            allowed = not available and session_id == persisted
        else:
            allowed = available and session_id == max(fenced, durable)
        assert (refusal is None) == allowed


def test_safety_b4_only_a_session_within_reach_raises_the_fence() -> None:
    fence = Fence(3)
    assert not fence.arrive(3 + SESSION_REACH + 1, 3)
    assert fence.session_id == 3
    assert fence.arrive(3 + SESSION_REACH, 3)


def test_safety_b1_what_the_disk_says_lowers_no_fence() -> None:
    """A later session may have arrived before the partition was opened."""
    fence = Fence()
    fence.arrive(9, -1)
    for durable, after in ((7, 9), (12, 12)):
        fence.restore(durable)
        assert fence.session_id == after
