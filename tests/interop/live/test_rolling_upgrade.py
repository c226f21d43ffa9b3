"""docs/upgrade-from-0.13.2.md, block by block, on a cluster with mutual TLS that two clients write to all the
time.

`STEPS` is the procedure; a test that needs no release holds it against the page.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.blocks import blocks
from tests.interop.live import key_stores
from tests.interop.live.judge import settle, violations
from tests.interop.live.loads import loads, until_progress
from tests.interop.live.mix import NODES, OURS, RELEASE, SERVERS, Mix, open_mix
from tests.interop.live.release import Release
from tests.repo.files import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "upgrade-from-0.13.2.md"

STEPS = (
    "key-stores",
    "check",
    "server-h1",
    "server-h2",
    "node-s1",
    "node-s2",
    "node-s3",
    "done",
    "back-s3",
    "back-s2",
    "back-s1",
    "back-h2",
    "back-h1",
)
PREFIXES = ("storage.ssl", "server.ssl", "client.ssl", "ssl")


def test_the_page_has_these_steps_in_this_order() -> None:
    assert tuple(block.run for block in blocks(PAGE, ROOT) if block.language == "sh") == STEPS


def test_servers_are_first_on_the_way_there_and_last_on_the_way_back() -> None:
    """Rule A1 holds only where no server of 0.13.2 owns a partition."""
    text = PAGE.read_text()
    there, back = text.split("## Back")
    assert there.rindex("waltz-server@") < there.index("waltz-storage@")
    assert back.rindex("waltz-storage-0.13.2@") < back.index("waltz-server-0.13.2@")


def test_the_page_is_followed_there_and_back_under_load(
    release: Release, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    page = {block.run: block for block in blocks(PAGE, ROOT)}
    stores = tmp_path / "tls"
    key_stores.make(stores)
    with open_mix(tmp_path, release) as mix:
        use(mix, stores, "jks", "JKS")
        mix.up(dict.fromkeys(NODES, RELEASE), dict.fromkeys(SERVERS, RELEASE), by=RELEASE)
        mix.follow(page[STEPS[0]])
        use(mix, stores, "p12", "PKCS12")
        with loads(mix) as both:
            until_progress(both)
            for step in STEPS[1:]:
                both.take_longest_pause()
                mix.follow(page[step])
                until_progress(both)
                record_property(f"live: longest pause, {step} (ms)", round(both.take_longest_pause() * 1000))
                if step == "done":
                    assert set(mix.runs.values()) == {OURS}
        assert set(mix.runs.values()) == {RELEASE}
        mix.complete()
        assert violations(settle(mix.read), both.known, false_failures=True) == []
        assert mix.complaints() == []
        record_property("live: acknowledged", len(both.known.acknowledged))


def use(mix: Mix, stores: Path, suffix: str, kind: str) -> None:
    """Every file names the key stores of one format, for every prefix; who runs has read its own already."""
    mix.configure(dict.fromkeys(PREFIXES, key_stores.keys(stores, suffix, kind)))
