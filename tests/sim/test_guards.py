"""The guards that look into processes see what they are for, and nothing else."""

from __future__ import annotations

from tests.sim.checkers.nodes import Durable, kept

OLD = {0: Durable(max_txid=10, session_id=3, low_water_mark=7, fence=4)}


def found(
    after: dict[int, Durable],
    *,
    damaged: tuple[int, ...] = (),
    dark: bool = False,
    failed: tuple[int, ...] = (),
) -> list[str]:
    """Names of the invariants violated."""
    return [one.invariant for one in kept("storage-1", OLD, after, damaged, dark=dark, failed=failed)]


def test_a_node_that_kept_or_raised_everything_is_fine() -> None:
    assert found(OLD) == []
    assert found({0: Durable(11, 4, 10, 5)}) == []


def test_anything_that_went_back_is_seen() -> None:
    for field in Durable._fields:
        assert found({0: OLD[0]._replace(**{field: 2})}) == ["node_kept"], field


def test_a_partition_that_refuses_or_was_taken_away_is_excused() -> None:
    assert found({}) == []


def test_a_changed_bit_excuses_the_marks_but_not_the_records_while_the_power_stayed() -> None:
    lower = {0: OLD[0]._replace(fence=2)}
    shorter = {0: OLD[0]._replace(max_txid=9)}
    assert found(lower, damaged=(0,)) == []
    assert found(shorter, damaged=(0,)) == ["node_kept"]
    assert found(shorter, damaged=(0,), dark=True) == []


def test_of_lost_files_a_copy_without_a_session_keeps_its_fence_only() -> None:
    """One that was reset and is being filled: it does not vote, and its directory may vanish unnoticed."""

    def after(session_id: int, fence: int, lost: tuple[int, ...]) -> list[str]:
        old, new = Durable(10, session_id, 7, 4), Durable(-1, session_id, -1, fence)
        return [one.invariant for one in kept("storage-1", {0: old}, {0: new}, (), dark=False, lost=lost)]

    assert after(-1, 4, (0,)) == []
    assert after(-1, 3, (0,)) == ["node_kept"]
    assert after(-1, 4, (1,)) == ["node_kept", "node_kept"]
    assert after(3, 4, (0,)) == ["node_kept", "node_kept"]


def test_a_failed_sync_excuses_only_what_was_damaged_as_well() -> None:
    shorter = {0: OLD[0]._replace(max_txid=9)}
    assert found(shorter, failed=(0,)) == ["node_kept"]
    assert found(shorter, damaged=(0,), failed=(1,)) == ["node_kept"]
    assert found(shorter, damaged=(0,), failed=(0,)) == []
