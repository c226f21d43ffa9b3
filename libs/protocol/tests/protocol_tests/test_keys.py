"""The numbers of keys: they are in logs and in every program that shares one, so they never change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_protocol.keys import key_hash, partition_for
from waltz_protocol.locks import LockId


@pytest.mark.parametrize(
    ("key", "number"),
    [("alice", 3159282601090220207), ("", 16406829232824261652), ("größer", 5042895402666228349)],
)
def test_known_hashes(key: str, number: int) -> None:
    """As `sha256sum` prints them: 2bd806c97f0e00af, e3b0c44298fc1c14, 45fbf1f8b4a3f5fd."""
    assert key_hash(key) == key_hash(key.encode()) == number


def test_known_partitions_and_locks() -> None:
    assert (partition_for("EUR", 8), partition_for("alice", 8), partition_for(b"alice", 1)) == (5, 7, 0)
    assert LockId.of("account", "alice") == LockId("account", 3159282601090220207)
    assert LockId.of("account", "") == LockId("account", 16406829232824261652 - 2**64)


def test_no_partition_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one partition, not 0"):
        partition_for("alice", 0)


@given(st.text(), st.text(), st.integers(1, 10_000))
def test_ids_are_signed_and_partitions_exist(name: str, key: str, partitions: int) -> None:
    assert -(2**63) <= LockId.of(name, key).id < 2**63
    assert 0 <= partition_for(key, partitions) < partitions
