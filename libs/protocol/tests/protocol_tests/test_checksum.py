"""The checksum is zlib's number, whoever computes it."""

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from waltz_protocol.checksum import crc32

_WITHOUT_ISAL = """
import sys
sys.modules["isal"] = sys.modules["isal.isal_zlib"] = None
import zlib
from waltz_protocol import checksum
assert checksum.crc32 is zlib.crc32
"""


@given(st.binary(max_size=3000), st.integers(0, 2**32 - 1), st.integers(0, 20), st.integers(0, 20))
def test_it_is_the_number_of_zlib(data: bytes, start: int, left: int, right: int) -> None:
    view = memoryview(data)[left : max(left, len(data) - right)]
    assert crc32(view, start) == zlib.crc32(view, start)
    assert crc32(data) == zlib.crc32(data) == crc32(bytearray(data))
    assert crc32(data, crc32(view)) == zlib.crc32(bytes(view) + data)


def test_here_it_is_that_of_the_processor() -> None:
    assert crc32 is not zlib.crc32


def test_zlib_takes_over_where_the_package_is_not_installed() -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT_ISAL], check=True)
