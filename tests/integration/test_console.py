"""The console on a real local cluster: over HTTP, and in a browser where the machine has one."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from typing import Any

import pytest

from tests.integration.browser import Browser, browser, find
from tests.integration.cli.live import Live, live_cluster
from tests.integration.console_pages import serious_faults, unlabelled
from tests.integration.processes import WALTZ
from waltz_client import WaltzClient

SECONDS = 60.0
SILENT_ROLE = "storage-2"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    options = ("--partitions", "4", "--no-console")
    with live_cluster(tmp_path_factory.mktemp("console") / "cluster", *options) as cluster:
        asyncio.run(_fill(cluster.config))
        yield cluster


async def _fill(config: str) -> None:
    async with WaltzClient.connect(config) as client:
        for number in range(20):
            await client.append(partition=1, data=json.dumps({"order": number}).encode(), header=number % 2)
        await client.append(partition=1, data=bytes.fromhex("82a2696407a46e616d65a5416c696365"), header=7)


@contextlib.contextmanager
def started(config: str, *options: str, program: Sequence[str] = WALTZ, **how: Any) -> Iterator[str]:
    """`waltz console` as a person starts it (`how`: where); the link that it prints."""
    command = [*program, "console", "-c", config, "--port", "0", "--interval", "0.5", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("console: http://127.0.0.1:"), line
            yield line.split()[1]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) == 0


class Visitor:
    """A program with the cookie of a session."""

    def __init__(self, link: str) -> None:
        self.base, self.token = link.split("#token=")
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.ask("api/login", {"token": self.token})

    def ask(self, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Origin": self.base.rstrip("/")}
        answer: HTTPResponse
        with self._opener.open(
            urllib.request.Request(self.base + path, data, headers), timeout=SECONDS
        ) as answer:
            found = json.load(answer)
        assert isinstance(found, dict)
        return found


@pytest.fixture(scope="module")
def link(live: Live) -> Iterator[str]:
    with started(live.config) as found:
        yield found


def test_the_console_of_a_real_cluster(live: Live, link: str) -> None:
    visitor = Visitor(link)
    overview = visitor.ask("api/overview")
    assert overview["partitions"] == {"all": 4, "closed": 0, "unknown": 0, "reduced": 0}
    assert overview["nodes"]["all"] == 3
    assert overview["findings"] == []
    explained = live.ok("explain", "partition", "1", "--output", "json").facts
    shown = visitor.ask("api/partitions/1")
    assert {key: shown[key] for key in explained} == explained, "the page has the words of the command"
    nodes = visitor.ask("api/nodes")
    assert [one["node"] for one in nodes["nodes"]] == sorted(live.storage_nodes)
    assert {one["server"] for one in nodes["servers"]} == set(live.servers)
    found = visitor.ask("api/records?partition=1&count=3&header=1")
    assert [row["line"] for row in found["rows"]] == [f'{{"order": {n}}}' for n in (19, 17, 15)]
    # The command that the page shows prints the same.
    words = re.sub(r"^.* tail ", "tail ", found["command"]).split()
    printed = [json.loads(line)["transaction"] for line in live.ok(*words).out.splitlines()]
    assert printed == [row["id"] for row in found["rows"]][::-1]
    one = visitor.ask("api/record?partition=1&id=20")
    assert (one["kind"], json.loads(one["msgpack"])) == ("msgpack", {"id": 7, "name": "Alice"})


def test_a_node_that_hangs_is_a_finding_and_a_change(live: Live, link: str) -> None:
    """And so is its return."""
    visitor = Visitor(link)
    visitor.ask("api/overview")
    with _hanging(live):
        _until(lambda: [one["rule"] for one in visitor.ask("api/findings")["rows"]] == ["node-silent"])
        page = visitor.ask("api/partitions/1")
        assert [one["votes"] for one in page["replicas"]].count(False) == 1
        assert page["findings"][0]["next_step"]
    _until(lambda: not visitor.ask("api/findings")["rows"])
    log = [one["text"] for one in visitor.ask("api/changes")["log"]]
    assert any("does not answer" in line for line in log)
    assert any("answers again" in line for line in log)


@contextlib.contextmanager
def _hanging(live: Live) -> Iterator[str]:
    pid = live.pids[SILENT_ROLE]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield live.storage_nodes[1]
    finally:
        os.kill(pid, signal.SIGCONT)


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


# ---- in a browser


@pytest.fixture(scope="module")
def window(link: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    programs = find()
    if programs is None:
        pytest.skip("no browser on this machine: apt-get install chromium chromium-driver")
    with browser(programs, tmp_path_factory.mktemp("browser")) as opened:
        opened.go(link)
        opened.see("All is well", "Live,")
        yield opened
        assert opened.log() == [], "nothing was refused by the policy of the page, and no script failed"


def test_every_page_is_reached_with_the_keyboard(window: Browser, live: Live) -> None:
    assert window.script("return location.href").find("token") == -1, "it is no longer in the address"
    for key, words in (
        ("2", ("4 partitions", live.servers[0])),
        ("3", ("3 storage nodes", *live.storage_nodes)),
        ("4", ("Partition 0 ends at transaction -1", "waltz")),
        ("5", ("No append was refused for a lock", "Nobody waits for a lock.")),
        ("6", ("clients,", "Furthest behind")),
        ("7", ("Every copy is current",)),
        ("8", ("No findings.",)),
        ("1", ("All is well", "Storage nodes")),
    ):
        window.keys(key)
        window.see(*words)
        title = window.script("return document.querySelector('h1').textContent")
        assert window.script("return document.title") == f"{title} – Waltz console"
        assert window.script("return document.querySelector('nav a[aria-current]').textContent") == title
        assert unlabelled(window) == []
        assert serious_faults(window) == []
    window.keys("?")
    assert window.script("return document.getElementById('keys').open")
    window.script("document.getElementById('keys').close()")


def test_partitions_are_sorted_and_filtered(window: Browser, live: Live) -> None:
    window.keys("2")
    window.see("4 partitions")
    rows = "return [...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].textContent)"
    assert window.script(rows) == ["0", "1", "2", "3"]
    window.click("th[data-key=id] button")
    assert window.script(rows) == ["3", "2", "1", "0"]
    assert window.script("return document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == (
        "descending"
    )
    window.type("#filter", live.servers[0])
    window.see("of 4 partitions")
    window.click("#only")
    window.see("No partition matches the filter.")


def test_a_record_is_opened_and_a_new_one_comes_in(window: Browser, live: Live) -> None:
    window.script("location.hash = '#/records?partition=1'")
    window.see("Partition 1 ends at transaction 20", '{"id": 7, "name": "Alice"}')
    window.click("tbody tr button")
    window.see("Transaction 20 of partition 1", '"name": "Alice"')
    live.ok("append", "-p", "3", "--data", "before")
    window.script("location.hash = '#/records?partition=3'")
    window.see("before")
    window.script(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Follow').click()"
    )
    window.see("Stop following")
    window.until(
        lambda: (
            live.ok("append", "-p", "3", "--data", "<b>while it is followed</b>")
            and "<b>while it is followed</b>" in window.text()
        ),
        "a record that was appended while the page follows, as text",
    )


def test_a_page_that_cannot_follow_says_why(window: Browser) -> None:
    window.script("location.hash = '#/records?partition=2&header=seven'")
    window.see("a header filter is VALUE")  # of the page of records
    window.script("document.querySelector('[role=status]').textContent = ''")
    window.script(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Follow').click()"
    )
    window.see("a header filter is VALUE")
    assert "Stop following" not in window.text()
    assert all("400 (Bad Request)" in one for one in window.log()), "these refusals only"


def test_a_node_that_hangs_is_on_the_screen_and_then_no_longer(window: Browser, live: Live) -> None:
    window.keys("1")
    window.see("All is well")
    with _hanging(live) as node:
        window.see(f"storage node {node} does not answer", "Next step: check that its machine is up")
        window.script("location.hash = '#/partitions/1'")
        window.see("2 of 3 replicas current, 2 needed", "unreachable")
    window.see("3 of 3 replicas current")
    window.see("current, it was unreachable")


def test_more_tabs_than_a_browser_has_connections(window: Browser, live: Live, link: str) -> None:
    """A browser opens six to one address for all tabs together, and each live page keeps one. A tab that is
    not shown gives its own up when another one is live; it continues what it follows when it is shown."""
    base = link.partition("#")[0]
    (first,) = window.tabs()
    window.script("location.hash = '#/records?partition=0'")
    window.see("The log is empty")
    window.script(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Follow').click()"
    )
    window.see("Waiting for what is appended")
    live.ok("append", "-p", "0", "--data", "before")
    window.see("before")
    try:
        for _ in range(8):
            _set_hidden(window, True)  # a browser without a window calls every tab visible
            window.new_tab()
            window.go(f"{base}#/partitions")
            window.see("4 partitions", "Live,")
        live.ok("append", "-p", "0", "--data", "meanwhile")
        _set_hidden(window, True)
        window.show(first)
        _set_hidden(window, False)
        window.see("before", "meanwhile", "Live.", "Live,")
        assert window.script("return document.querySelectorAll('tbody tr').length") == 2
        live.ok("append", "-p", "0", "--data", "after it")
        window.see("after it", "Stop following")
    finally:
        for tab in window.tabs():
            if tab != first:
                window.show(tab)
                window.close_tab()
        window.show(first)


def _set_hidden(window: Browser, hidden: bool) -> None:
    window.script(
        "Object.defineProperty(document, 'hidden', { configurable: true, value: arguments[0] });"
        "document.dispatchEvent(new Event('visibilitychange'))",
        hidden,
    )


def test_light_and_dark(window: Browser) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = window.script(ground)
    window.keys("t")
    assert window.script(ground) != before
    window.keys("t")
    assert window.script(ground) == before


def test_the_search_for_faults_of_accessibility_finds_one(window: Browser) -> None:
    window.keys("1")
    window.see("Overview")
    window.script(
        "const one = document.createElement('img'); one.id = 'planted'; one.src = '/assets/icon.svg';"
        "document.body.append(one)"  # a page that is drawn anew meanwhile leaves it alone
    )
    (found,) = serious_faults(window)
    assert found[0] == "image-alt"
    window.script("document.getElementById('planted').remove()")
    assert serious_faults(window) == []
