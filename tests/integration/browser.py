"""Chromium without a window, driven by the W3C WebDriver protocol of `chromedriver`: JSON over HTTP, so no
package is needed.

Both are Debian's (`chromium`, `chromium-driver`). `find` gives None where they are missing; the tests that
need them are skipped and say so.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from waltz_testkit.ports import free_ports

SECONDS = 30.0
_PAUSE_SECONDS = 0.05
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Programs(NamedTuple):
    """Where both are."""

    chromium: str
    driver: str


def find() -> Programs | None:
    """Debian's Chromium and its driver; None when the machine has not both."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return Programs(chromium, driver) if chromium and driver else None


class Browser:
    """One window. `see` waits for a condition, `script` runs in the page."""

    def __init__(self, base: str, session: str) -> None:
        self._base = base
        self._session = session

    def _call(self, method: str, path: str, body: object = None) -> Any:
        return call(self._base, method, f"/session/{self._session}{path}", body)

    def go(self, url: str) -> None:
        """Load an address; one that differs behind the # only is no new page."""
        self._call("POST", "/url", {"url": url})

    def script(self, text: str, *arguments: object) -> Any:
        """The value of a function body."""
        return self._call("POST", "/execute/sync", {"script": text, "args": list(arguments)})

    def script_async(self, text: str, *arguments: object) -> Any:
        """What a function body passes to the last of its arguments, a function."""
        return self._call("POST", "/execute/async", {"script": text, "args": list(arguments)})

    def text(self) -> str:
        """What a reader sees."""
        found = self.script("return document.body ? document.body.innerText : ''")
        return str(found)

    def until(self, condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
        """Wait; fails with the page's text."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (
                f"{what}: not after {seconds:g} s; the page has:\n{self.text()}"
            )
            time.sleep(_PAUSE_SECONDS)

    def see(self, *texts: str, seconds: float = SECONDS) -> None:
        """Wait until the page has all of these."""
        self.until(lambda: all(one in self.text() for one in texts), f"{texts} on the page", seconds)

    def click(self, selector: str) -> None:
        """The first element that matches."""
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        self._call("POST", f"/element/{found}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Into the first element that matches, in place of what is there."""
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        self._call("POST", f"/element/{found}/clear", {})
        self._call("POST", f"/element/{found}/value", {"text": text})

    def keys(self, text: str) -> None:
        """Into whatever has the focus."""
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def log(self) -> list[str]:
        """What the page has complained of since the last question: errors, refused scripts and styles."""
        entries = self._call("POST", "/se/log", {"type": "browser"})
        return [str(one["message"]) for one in entries if one["level"] in ("SEVERE", "WARNING")]

    def tabs(self) -> list[str]:
        """Names of all tabs."""
        return [str(name) for name in self._call("GET", "/window/handles")]

    def new_tab(self) -> None:
        """Open one and show it."""
        self.show(str(self._call("POST", "/window/new", {"type": "tab"})["handle"]))

    def show(self, tab: str) -> None:
        """The tab of this name."""
        self._call("POST", "/window", {"handle": tab})

    def close_tab(self) -> None:
        """The one that is shown; another one has to be shown next."""
        self._call("DELETE", "/window")

    def picture(self, path: Path) -> None:
        """The window as a PNG."""
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def size(self, width: int, height: int) -> None:
        """Of the window, in pixels."""
        self._call("POST", "/window/rect", {"width": width, "height": height})


def call(base: str, method: str, path: str, body: object = None) -> Any:
    """One request to the driver; AssertionError with its message."""
    data = None if method == "GET" else json.dumps(body or {}).encode()
    request = urllib.request.Request(
        f"{base}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{path}: {json.load(error)['value']['message']}") from None


@contextlib.contextmanager
def browser(programs: Programs, directory: Path, *, dark: bool = False) -> Iterator[Browser]:
    """A window of its own, with a profile in `directory`; it is closed at the end."""
    (port,) = free_ports(1)
    base = f"http://127.0.0.1:{port}"
    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--window-size=1400,1000",
        f"--user-data-dir={directory / 'profile'}",
    ]  # fmt: skip
    if dark:
        options.append("--blink-settings=preferredColorScheme=0")
    wanted = {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": programs.chromium, "args": options},
        "goog:loggingPrefs": {"browser": "ALL"},
        "acceptInsecureCerts": True,
    }
    with (directory / "driver.log").open("wb") as log:
        process = subprocess.Popen([programs.driver, f"--port={port}"], stdout=log, stderr=log)
        try:
            _until_ready(base, process)
            answer = call(base, "POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            try:
                yield Browser(base, answer["sessionId"])
            finally:
                call(base, "DELETE", f"/session/{answer['sessionId']}")
        finally:
            process.terminate()
            process.wait(SECONDS)


def _until_ready(base: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        assert process.poll() is None, "chromedriver has ended"
        with contextlib.suppress(OSError):
            if call(base, "GET", "/status")["ready"]:
                return
        assert time.monotonic() < deadline, "chromedriver is not ready"
        time.sleep(_PAUSE_SECONDS)
