"""How far a refusal tells where a fence is."""

from waltz_protocol.fence_refusal import fence_in, fenced_off


def test_ours_names_the_session_that_it_takes() -> None:
    assert fence_in(fenced_off(4, 9), 4) == 9
    assert fence_in(fenced_off(-1, 2**63 - 1), -1) == 2**63 - 1


def test_0_13_2_says_only_that_it_is_higher() -> None:
    text = "com.wepay.waltz.storage.exception.ConcurrentUpdateException: session id: 4"
    assert fence_in(text, 4) == 5


def test_other_refusals_say_nothing() -> None:
    for text in ("the partition is not available", "", "session 4 is not the persisted session 3"):
        assert fence_in(text, 4) is None
