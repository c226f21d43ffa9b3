"""Every page of the console in one situation: it is there, it shows no error, everything has a name, and axe
finds no serious fault."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any

from tests.integration.browser import Browser

PAGES = {
    "overview": "Overview",
    "partitions": "Partitions",
    "partitions/1": "Partition 1",
    "nodes": "Nodes",
    "records?partition=1": "Records",
    "locks": "Locks",
    "clients": "Clients",
    "changes": "Changes",
    "findings": "Findings",
}
"""Where each is, and its title."""
READY_SECONDS = 30.0
_AXE = resources.files("axe_core_python") / "axe.min.js"

_IS_READY = """
const page = document.getElementById("page");
return document.querySelector("h1")?.textContent === arguments[0] && page.querySelectorAll("*").length > 4
  && !page.textContent.includes("Reading…");
"""


def visit_every_page(
    window: Browser, situation: str, texts: Sequence[str] = (), *, thorough: bool = False
) -> None:
    """Go through all of them; `texts` have to be on one of them. `thorough`: in the other theme too."""
    missing = set(texts)
    for path, title in PAGES.items():
        window.script(f"location.hash = '#/{path}'")
        ready = partial(window.script, _IS_READY, title)
        window.until(ready, f"{title}, {situation}", READY_SECONDS)
        window.until(partial(_no_error, window), f"{title} without an error, {situation}", READY_SECONDS)
        shown = " ".join(window.text().split())
        missing -= {text for text in missing if text in shown}
        assert unlabelled(window) == [], (situation, title)
        for turn in range(2 if thorough else 1):
            if turn:
                _switch_theme(window)
            assert serious_faults(window) == [], (situation, title, turn)
        if thorough:
            _switch_theme(window)
    assert not missing, f"{missing} are on no page, {situation}"


def _no_error(window: Browser) -> bool:
    return not window.script("return document.getElementById('notice').textContent")


def _switch_theme(window: Browser) -> None:
    before = window.script("return document.documentElement.dataset.theme")
    window.script("document.getElementById('theme').click()")
    assert window.script("return document.documentElement.dataset.theme") != before
    time.sleep(0.1)  # colors change at once; axe reads what was painted


def serious_faults(window: Browser) -> Any:
    """What axe-core calls serious or critical: each rule with the elements that break it."""
    if not window.script("return typeof axe === 'object'"):
        window.script(_AXE.read_text())
    return window.script_async(
        """
        const done = arguments[arguments.length - 1];
        axe.run(document, { resultTypes: ["violations"] }).then(
          (found) => done(found.violations.filter((one) => ["serious", "critical"].includes(one.impact))
            .map((one) => [one.id, one.help, one.nodes.map((node) => node.html.slice(0, 200))])),
          (error) => done([["axe", String(error), []]]));
        """
    )


def unlabelled(window: Browser) -> Any:
    """Fields and buttons without a name, pictures without a text, tables without heads, ids that are there
    twice."""
    return window.script(
        """
        const bad = [];
        for (const one of document.querySelectorAll("input, select, textarea"))
          if (!one.labels.length && !one.getAttribute("aria-label")) bad.push(one.outerHTML);
        for (const one of document.querySelectorAll("button, a"))
          if (!(one.textContent.trim() || one.getAttribute("aria-label"))) bad.push(one.outerHTML);
        for (const one of document.querySelectorAll("[role=img]"))
          if (!one.getAttribute("aria-label")) bad.push(one.outerHTML);
        for (const one of document.querySelectorAll("table"))
          if (!one.querySelector("caption") || !one.querySelector("th[scope]"))
            bad.push("a table without a head");
        const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
        if (new Set(ids).size !== ids.length) bad.push("an id is there twice");
        if (document.querySelectorAll("main, h1").length !== 2) bad.push("not one main part with one title");
        return bad;
        """
    )
