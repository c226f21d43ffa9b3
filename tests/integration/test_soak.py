"""`make soak` in short: every kind of round once. What it prints is shown by pytest when it fails."""

from pathlib import Path

import pytest

from tests.integration.soak import soak
from tests.integration.soak_rounds import Plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def test_short_soak(tmp_path: Path) -> None:
    assert await soak(tmp_path, Plan(kills=1, pause_seconds=1.0), tls=True)
