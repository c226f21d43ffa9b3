"""Blocks as columns: whatever the bytes are, the numpy way of the Spark source and `parse_block` agree, in
the error too; and the columns are those of the transactions."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.target import Target
from tests.fuzz.targets.blocks import seeds
from waltz_protocol.errors import ProtocolError
from waltz_protocol.frames.blocks import Block, parse_block
from waltz_spark.blocks import columns_of_blocks, cut_block


def check(data: bytes) -> None:
    expected, found = _outcome(parse_block, data), _outcome(cut_block, data)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    assert list(found.starts) == list(expected.starts)
    if not found.count:
        return
    columns = columns_of_blocks([found])
    assert columns is not None
    columns["data"].validate(full=True)
    assert columns["data"].to_pylist() == expected.payloads()
    assert columns["checksum"].to_pylist() == expected.checksums()
    assert columns["transaction_id"].to_pylist() == [fields[4] for fields in expected.fields()]


def _outcome(parse: Callable[[memoryview], Block], data: bytes) -> Block | str:
    try:
        return parse(memoryview(data))
    except ProtocolError as error:
        return str(error)


TARGET = Target(check, seeds)
