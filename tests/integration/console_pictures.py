"""Makes the pictures of docs/console.md: `python -m tests.integration.console_pictures`. Needs Debian's
Chromium and its driver."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.integration.browser import Browser, browser, find
from tests.integration.cli.live import Live, live_cluster
from tests.integration.test_console import started
from waltz_client import LockConflictError, LockId
from waltz_client.blocking import BlockingWaltzClient

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
WIDTH, HEIGHT = 1240, 860
LOAD_SECONDS = 25.0


def main() -> int:
    programs = find()
    if programs is None:
        sys.stderr.write(
            "Error: there is no Chromium on this machine: apt-get install chromium chromium-driver\n"
        )
        return 1
    with tempfile.TemporaryDirectory(prefix="waltz-pictures-") as folder:
        directory = Path(folder)
        with (
            live_cluster(directory / "cluster", "--partitions", "8", "--no-console") as live,
            # By its name, in the folder of the file: the pages show commands as they are typed there.
            started(
                Path(live.config).name,
                program=["waltz"],
                cwd=Path(live.config).parent,
                env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            ) as link,
        ):
            for dark in (False, True):
                profile = directory / f"browser-{dark}"
                profile.mkdir()
                with browser(programs, profile, dark=dark) as window:
                    window.size(WIDTH, HEIGHT)
                    window.go(link)
                    window.see("Overview", "Live,")
                    (_dark if dark else _light)(window, live)
    return 0


def _light(window: Browser, live: Live) -> None:
    """The overview under load, and records."""
    load = threading.Thread(target=_write, args=(live.config,))
    load.start()
    load.join()
    window.picture(PICTURES / "console-overview.png")
    window.script("location.hash = '#/records?partition=1'")
    window.see("ends at transaction")
    window.click("tbody tr button")
    window.see("of partition 1", '"account"')
    window.picture(PICTURES / "console-records.png")
    _locks(window, live)


def _locks(window: Browser, live: Live) -> None:
    """Two clients that fight over two locks, one of which the reader names."""
    done = threading.Event()
    load = threading.Thread(target=_contend, args=(live.config, done))
    load.start()
    try:
        window.script(
            "sessionStorage.setItem('waltz-lock-names', 'account/alice'); location.hash = '#/locks'"
        )
        window.see("account/alice", "was refused for")
        time.sleep(4.0)  # conflicts per second
        window.picture(PICTURES / "console-locks.png")
    finally:
        done.set()
        load.join()


def _contend(config: str, done: threading.Event) -> None:
    """Conflicts, until it is over."""
    with BlockingWaltzClient.connect(config) as one, BlockingWaltzClient.connect(config) as other:
        number = 0
        while not done.is_set():
            number += 1
            lock = LockId.of("account", "alice" if number % 3 else "bob")
            one.append(partition=number % 2, data=b"{}", write_locks=[lock])
            with contextlib.suppress(LockConflictError):
                other.append(partition=number % 2, data=b"{}", write_locks=[lock], as_of=-1)
            time.sleep(0.02)


def _dark(window: Browser, live: Live) -> None:
    """A partition one of whose replicas does not answer."""
    pid = live.pids["storage-2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        window.script("location.hash = '#/partitions/1'")
        window.see("2 of 3 replicas current", "Next step")
        time.sleep(1.0)  # the page's transitions
        window.picture(PICTURES / "console-partition.png")
    finally:
        os.kill(pid, signal.SIGCONT)


def _write(config: str) -> None:
    """Appends, a little faster and slower in turn."""
    with BlockingWaltzClient.connect(config) as client:
        started_at, number = time.monotonic(), 0
        while (now := time.monotonic() - started_at) < LOAD_SECONDS:
            number += 1
            data = {"account": f"customer-{number % 57}", "amount": number % 900, "currency": "EUR"}
            client.append(partition=number % 8, data=json.dumps(data).encode(), header=number % 4)
            time.sleep(0.002 if int(now / 6) % 2 else 0.01)


if __name__ == "__main__":
    sys.exit(main())
