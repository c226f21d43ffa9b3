"""`waltz local up` while it starts and while it runs, without processes."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from waltz_tools.__main__ import run
from waltz_tools.cli import local
from waltz_tools.errors import LocalClusterError
from waltz_tools.local import LocalCluster


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_ends_it(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is the exit code of an interrupt, as at every command; SIGTERM an orderly end."""
    done = []

    async def start(_: LocalCluster) -> None:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()

    async def stop(_: LocalCluster) -> None:
        done.append("stopped")

    monkeypatch.setattr(LocalCluster, "start", start)
    monkeypatch.setattr(LocalCluster, "stop", stop)
    if number is signal.SIGINT:
        with pytest.raises(KeyboardInterrupt):
            run(["local", "up", "--data", str(tmp_path)])
    else:
        assert run(["local", "up", "--data", str(tmp_path)]) == 0
    assert done == ["stopped"]


class _Dying:
    """A cluster one of whose nodes ends again and again; `restarts` counts."""

    def __init__(self, stop: asyncio.Event, most: int) -> None:
        self.restarts, self._stop, self._most = 0, stop, most

    def unexpected_ends(self) -> list[tuple[str, int]]:
        return [("storage-1", 1)]

    def why_ended(self, role: str) -> str:
        return f"{role} ended with code 1"

    async def start_role(self, role: str, *, wait: bool) -> None:
        self.restarts += 1
        if self.restarts == self._most:
            self._stop.set()


async def _restarts(monkeypatch: pytest.MonkeyPatch, sound_seconds: float) -> int:
    monkeypatch.setattr(local, "_WATCH_SECONDS", 0.001)
    monkeypatch.setattr(local, "_FORGET_SECONDS", sound_seconds)
    stop = asyncio.Event()
    cluster: Any = _Dying(stop, 3 * local._MAX_RESTARTS)
    await local._watch(cluster, stop, None)
    return int(cluster.restarts)


async def test_a_role_that_ends_again_and_again_ends_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LocalClusterError, match="storage-1 ended with code 1; it was restarted 5 times"):
        await _restarts(monkeypatch, 60.0)


async def test_restarts_before_a_sound_run_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _restarts(monkeypatch, 0.0) == 3 * local._MAX_RESTARTS
