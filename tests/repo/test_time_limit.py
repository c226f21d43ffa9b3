"""The time limit of a test ends it, also when it first strikes inside a callback of the loop, which continues
after that."""

import subprocess
import sys
from pathlib import Path

from tests.repo.files import ROOT

_FILE = """
import asyncio, time, pytest

@pytest.mark.timeout(1)
def test_endless():
    async def wait():
        def busy():
            until = time.monotonic() + 2
            while time.monotonic() < until:
                pass
        asyncio.get_running_loop().call_soon(busy)
        while True:
            await asyncio.sleep(0.01)
    asyncio.run(wait())
"""


def test_a_time_limit_that_strikes_in_a_callback_strikes_again(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_endless.py").write_text(_FILE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_endless.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "1 failed" in done.stdout, done.stdout
    assert "Timeout (>1.0s) from pytest-timeout" in done.stdout
