"""The numbers of keys: they are in logs and in every program that shares one, so they never change."""

from typing import Any, cast

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


@pytest.mark.parametrize("key", [42, None, 1.5, ["a"], ("a", 1)])
def test_what_is_no_text_is_named(key: Any) -> None:
    said = f"a key is text or bytes, not {type(key).__name__}: "
    with pytest.raises(TypeError, match=said):
        partition_for(key, 4)
    with pytest.raises(TypeError, match=said):
        LockId.of("account", key)


def test_bytes_are_a_key_in_each_of_their_types() -> None:
    assert key_hash(b"alice") == key_hash("alice")
    for other in (bytearray(b"alice"), memoryview(b"alice")):
        assert key_hash(cast("bytes", other)) == key_hash("alice")
