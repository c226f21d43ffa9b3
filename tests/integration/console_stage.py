"""A real cluster with a console in front of it, for tests that stage a fault and look at the pages: over HTTP
always, in a browser where the machine has one."""

from __future__ import annotations

import asyncio
import re
import shlex
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, CookieJar

from tests.integration.browser import Browser, browser, find
from tests.integration.console_pages import visit_every_page
from tests.integration.processes import Ended, waltz
from waltz_client import WaltzClient
from waltz_tools.console.run import link, serving
from waltz_tools.console.settings import ConsoleSettings, new_token
from waltz_tools.local import LocalCluster, LocalSettings

SECONDS = 60.0
FOUND_SECONDS = 5.0
"""From the effect of a fault to the finding on the screen."""
PARTITIONS = 2
INTERVAL_SECONDS = 0.5


@dataclass
class Watched:
    """A cluster of three storage nodes, two servers and two partitions, a session of its console, and a
    window where there is a browser. `took`: seconds from fault to finding, by rule."""

    cluster: LocalCluster
    session: ClientSession
    window: Browser | None
    took: dict[str, float] = field(default_factory=dict)

    @property
    def config(self) -> str:
        return str(self.cluster.client_config)

    async def ask(self, page: str) -> dict[str, Any]:
        async with self.session.get(f"/api/{page}") as answer:
            found = await answer.json()
            return found if isinstance(found, dict) else {}

    async def until_well(self) -> None:
        """Until there are no findings."""
        found: list[dict[str, Any]] | None = None
        deadline = time.monotonic() + SECONDS
        while found != []:
            assert time.monotonic() < deadline, f"not repaired: {found}"
            await asyncio.sleep(0.1)
            found = (await self.ask("findings")).get("rows")

    async def found(self, rule: str) -> list[dict[str, Any]]:
        """The findings of this rule, which have to be there, and on the screen, within `FOUND_SECONDS` from
        now: call it when the fault has its effect."""
        started, answered = time.monotonic(), 0.0
        rows: list[dict[str, Any]] = []
        seen: list[dict[str, Any]] = []
        while not rows or not await self._on_screen(rows):
            late = time.monotonic() - started
            known = f", the console knew it after {answered:.1f} s" if answered else ""
            assert late < FOUND_SECONDS, f"no {rule} on the screen{known}, but {seen}"
            await asyncio.sleep(0.05)
            seen = (await self.ask("findings")).get("rows", [])
            rows = [one for one in seen if one["rule"] == rule]
            answered = answered or (time.monotonic() - started if rows else 0.0)
        self.took[rule] = time.monotonic() - started
        return rows

    async def _on_screen(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        window = self.window
        if window is None:
            return True
        text = await asyncio.to_thread(
            window.script, "return document.getElementById('page').textContent.replaceAll(/\\s+/g, ' ')"
        )
        return f"(rule {rows[0]['rule']})" in str(text)

    async def look(self, situation: str, *texts: str, thorough: bool = False) -> None:
        """Every page in this situation, if there is a browser; `texts` are on one of them."""
        if self.window is not None:
            await asyncio.to_thread(visit_every_page, self.window, situation, texts, thorough=thorough)
            await self.show("findings")

    async def show(self, page: str) -> None:
        if self.window is not None:
            await asyncio.to_thread(self.window.script, f"location.hash = '#/{page}'")

    async def waltz(self, *arguments: str, code: int = 0) -> Ended:
        """One command."""
        done = await waltz(*arguments, "-c", self.config)
        assert done.code == code, done
        return done

    async def carry_out(self, finding: Mapping[str, Any], *more: str) -> list[str]:
        """The commands that the next step names, with what they need besides; returns them."""
        commands = commands_of(str(finding["next_step"]))
        assert commands, finding
        for command in commands:
            await self.waltz(*command[1:], *more)
        return [shlex.join(command) for command in commands]

    async def append(self, count: int = 4) -> None:
        async with WaltzClient.connect(self.config) as client:
            for number in range(count):
                await client.append(partition=number % PARTITIONS, data=b"x", deadline_seconds=60)


def commands_of(next_step: str) -> list[list[str]]:
    """Each `waltz …` in backticks, as words from `waltz` on, however this `waltz` was started."""
    found = []
    for text in re.findall(r"`([^`]*\bwaltz\b[^`]*)`", next_step):
        words = shlex.split(text)
        place = next(i for i, word in enumerate(words) if word.endswith("waltz") or word == "waltz_tools")
        found.append(["waltz", *words[place + 1 :]])
    return found


@asynccontextmanager
async def watched(directory: Path, **settings: Any) -> AsyncIterator[Watched]:
    """`settings`: more of the cluster's. Its servers do not watch each other: one that is killed is
    registered until its session ends, which is a finding."""
    overrides = dict(settings.pop("overrides", {}))
    overrides["server"] = {"server.peerWatch.enabled": False, **overrides.get("server", {})}
    wanted = LocalSettings(
        directory,
        storage_nodes=3,
        servers=2,
        partitions=PARTITIONS,
        tls=False,
        overrides=overrides,
        **settings,
    )
    async with LocalCluster(wanted) as cluster:
        async with WaltzClient.connect(cluster.client_config) as client:
            for partition in (0, 1, 0, 1):
                await client.append(partition=partition, data=b"x")
        console = ConsoleSettings(new_token(), port=0, interval_seconds=INTERVAL_SECONDS)
        async with serving(cluster.client_config, console) as bound:
            address = link(bound, with_token=False)
            async with ClientSession(address, cookie_jar=CookieJar(unsafe=True)) as session:
                origin = {"Origin": address.rstrip("/")}
                await session.post("/api/login", json={"token": bound.token}, headers=origin)
                with ExitStack() as stack:
                    window = await asyncio.to_thread(_open, stack, link(bound, with_token=True))
                    yield Watched(cluster, session, window)
                    if window is not None:
                        log = await asyncio.to_thread(window.log)
                        # Records of a partition without a majority cannot be read: the answer is an error.
                        other = [line for line in log if "/api/record" not in line]
                        assert other == [], "no script failed, nothing was refused by the pages' policy"
                    await asyncio.to_thread(stack.close)


def _open(stack: ExitStack, address: str) -> Browser | None:
    programs = find()
    if programs is None:
        return None
    profile = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="waltz-browser-", ignore_cleanup_errors=True)
    )
    window = stack.enter_context(browser(programs, Path(profile)))
    window.go(address)
    window.see("Overview", "Live,")
    window.script("location.hash = '#/findings'")
    return window
