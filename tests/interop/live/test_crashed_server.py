"""A server of ours that crashes and is back at once serves both clients without waiting for its own ghost."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.live.judge import settle, violations
from tests.interop.live.loads import loads, until_progress
from tests.interop.live.mix import OURS, RELEASE, open_mix
from tests.interop.live.release import Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SESSION_TIMEOUT_MS = 40_000
_BEFORE_THE_GHOST_ENDS = 25.0
"""Seconds. Its ZooKeeper session lives for 40 s after its last heartbeat, and heartbeats come every 13 s."""


def test_a_crashed_server_of_ours_is_back_before_its_session_ends(
    release: Release, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with open_mix(tmp_path, release, SESSION_TIMEOUT_MS) as mix:
        mix.up({"s1": RELEASE, "s2": OURS, "s3": OURS}, {"h1": OURS})
        mix.complete()
        with loads(mix) as both:
            until_progress(both)
            both.take_longest_pause()
            began = time.monotonic()
            mix.swap("h1", OURS, signal.SIGKILL)
            until_progress(both)
            took = time.monotonic() - began
            record_property(
                "live: longest pause, crashed server (ms)", round(both.take_longest_pause() * 1000)
            )
        assert took < _BEFORE_THE_GHOST_ENDS
        mix.complete()
        assert violations(settle(mix.read), both.known, false_failures=False) == []
        assert mix.complaints() == []
