"""The session fence, alone: every combination of the permission rules."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from waltz_storage.service.fence import Fence


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
