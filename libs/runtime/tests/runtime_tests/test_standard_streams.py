"""Standard streams that a parent has closed, and an encoding that lacks what is written."""

import ast
import io
import os
import subprocess
import sys

import pytest

from waltz_runtime import standard_streams

PROGRAM = """
import os, sys
for number in {closed}:
    os.close(number)
os.execv(sys.executable, [sys.executable, "-c", '''
import os, sys
from waltz_runtime import standard_streams
standard_streams.complete()
file = os.open(os.devnull, os.O_RDONLY)
places = [os.path.samestat(os.fstat(number), os.stat(os.devnull)) for number in range(3)]
print("out"); print("err", file=sys.stderr)
read = sys.stdin.read()
os.write({result}, repr((places, read, file > 2, [os.get_inheritable(n) for n in range(3)])).encode())
'''])
"""


@pytest.mark.parametrize("closed", [(), (0,), (1,), (2,), (1, 2), (0, 1, 2)])
def test_what_is_closed_is_nothing_and_no_file_gets_its_number(closed: tuple[int, ...]) -> None:
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(closed=closed, result=writing)],
            input="in",
            capture_output=True,
            text=True,
            pass_fds=[writing],
            check=False,
        )
    finally:
        os.close(writing)
    with open(reading) as result:
        assert done.returncode == 0, done.stderr
        places, read, above, inheritable = ast.literal_eval(result.read())
    assert places == [number in closed for number in range(3)]
    assert read == ("" if 0 in closed else "in")
    assert above
    assert all(inheritable)
    assert done.stdout == ("" if 1 in closed else "out\n")
    assert done.stderr == ("" if 2 in closed else "err\n")


def test_what_the_encoding_of_the_output_lacks_has_a_backslash(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_written, encoding="latin-1"))
    standard_streams.complete()
    print("é 東", flush=True)
    assert bytes_written.getvalue() == b"\xe9 \\u6771\n"
