"""Every disk is lost and there are copies (docs/operations.md), or all copies were reset: what is in the log
afterwards is counted."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.blocks import blocks
from tests.integration.cli.live import Done
from tests.integration.cli.stage import Load, Stage, open_stage
from tests.integration.workload import History, Verdict, check_log
from tests.repo.files import ROOT

pytestmark = [pytest.mark.staged, pytest.mark.timeout(400)]

NODES = ("s1", "s2", "s3")
SERVERS = ("h1", "h2")
RECORDS = 60
JOURNAL: dict[str, object] = {
    "storage.journal.enabled": True,
    "storage.journal.files": 3,
    "storage.journal.fileBytes": 2**20,
}


def well(stage: Stage, *arguments: str) -> Done:
    done = stage.waltz(*arguments)
    assert done.code == 0, (arguments, done, stage.waltz("doctor", "--output", "json"))
    return done


def begin(stage: Stage) -> None:
    (block,) = [one for one in blocks(ROOT / "docs" / "operations.md", ROOT) if one.run == "new-cluster"]
    stage.follow(block)


def more(stage: Stage, load: Load) -> None:
    """Wait until so many more were acknowledged."""
    before = len(load.history.acknowledged)
    stage.until(lambda: len(load.history.acknowledged) >= before + RECORDS, "appends", load=load)


def lose_everything(stage: Stage) -> None:
    """All processes die, and ZooKeeper is there again, empty."""
    for name in sorted(stage.processes):
        stage.stop(name, signal.SIGKILL)
    lose_zookeeper(stage)


def lose_zookeeper(stage: Stage) -> None:
    stage.zookeeper.kill()
    shutil.rmtree(stage.zookeeper.data_dir / "version-2")
    stage.zookeeper.start()


def start(stage: Stage, *names: str) -> None:
    for name in names:
        stage.start(name)


def check(stage: Stage, acknowledged: dict[bytes, tuple[int, int]], all_of_them: History) -> Verdict:
    """Those are all there, at their ids; the rest may be gone."""
    rest = all_of_them.acknowledged.keys() - acknowledged.keys()
    history = History(acknowledged, all_of_them.failed, all_of_them.unknown | rest)
    return asyncio.run(check_log(Path(stage.config), history))


@pytest.mark.parametrize("journal", [False, True], ids=["files", "journal"])
def test_copies_of_different_moments_hold_what_was_acknowledged_before_the_first(
    tmp_path: Path, journal: bool
) -> None:
    """With the journal, the servers are restarted between the copies: these are of different sessions, and
    the exported tree is older than two of them."""
    with open_stage(tmp_path, JOURNAL if journal else None) as stage:
        begin(stage)
        load = Load(stage.config)
        load.start()
        more(stage, load)
        tree = str(tmp_path / "tree.json")
        well(stage, "zk", "export", tree)
        early = dict(load.history.acknowledged)
        for node in NODES:
            more(stage, load)
            stage.back_up(node, signal.SIGKILL)
            well(stage, "cluster", "verify", "--wait", "120")
            if journal:
                for server in SERVERS:
                    stage.stop(server)
                    stage.start(server)
                well(stage, "cluster", "verify", "--wait", "120")
        more(stage, load)
        load.stop()
        lose_everything(stage)
        for node in NODES:
            shutil.rmtree(stage.data(node))
            shutil.copytree(stage.directory / "backup" / node, stage.data(node))
        well(stage, "zk", "import", tree, "--yes")
        start(stage, *NODES)
        stage.until(lambda: stage.waltz("storage", "validate").code == 0, "all nodes answer")
        start(stage, *SERVERS)
        answers: list[str] = []

        def decided() -> bool:
            answers.append(stage.waltz("doctor", "--output", "json").out)
            return "accept-restored -p" in answers[-1] or stage.waltz("cluster", "verify").code == 0

        stage.until(decided, "all is well, or the fault is named")
        older = "accept-restored -p" in answers[-1]
        assert older or not journal
        if older:
            well(stage, "zk", "accept-restored", "-p", "0-7")
        well(stage, "cluster", "verify", "--wait", "120")
        verdict = check(stage, early, load.history)
        assert verdict.passed, str(verdict)
        assert verdict.transactions < len(load.history.acknowledged), "nothing was lost, so nothing was shown"
        # The ids of what is gone are given out again, to other transactions.
        again = Load(
            stage.config, History(early, set(), load.history.unknown | load.history.acknowledged.keys())
        )
        again.start()
        more(stage, again)
        again.stop()
        verdict = again.check()
        assert verdict.passed, str(verdict)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("stage")) as opened:
        begin(opened)
        yield opened


@pytest.fixture(scope="module")
def load(stage: Stage) -> Load:
    """What was acknowledged before anything was lost."""
    found = Load(stage.config)
    found.start()
    more(stage, found)
    found.stop()
    return found


def reset_all(stage: Stage) -> None:
    for node in NODES:
        stage.stop(node)
        well(stage, "storage", "restore-reset", str(stage.data(node)), "--yes")
        stage.start(node)


def keep(stage: Stage) -> Done:
    """The command that doctor names, as it names it."""
    found: list[str] = []

    def named() -> bool:
        said = " ".join(stage.waltz("doctor", "--output", "json").out.split())
        assert "forget -s" not in said
        found[:] = re.findall(r"`waltz (storage forget --keep [^`]*)`", said)
        return bool(found)

    stage.until(named, "doctor names the copy to keep")
    done = [stage.waltz(*one.split()) for one in found]
    assert all(one.code == 0 for one in done), done
    return done[0]


def test_all_copies_were_reset_and_one_of_them_is_taken_as_it_is(stage: Stage, load: Load) -> None:
    for server in SERVERS:
        stage.stop(server)
    reset_all(stage)
    start(stage, *SERVERS)
    s1, s2, s3 = map(stage.node, NODES)
    wanted = ("storage", "forget", "--keep", s3, "-p", "0-7")
    stage.until(lambda: "kept" in stage.waltz(*wanted, "--dry-run").out, "all nodes answer")
    assert "--accept-data-loss" in stage.waltz(*wanted).error(2)
    for node in (s1, s2):  # one replica after the other, as it was once advised
        well(stage, "storage", "forget", "-s", node, "-p", "0-7", "--accept-data-loss")
    last = stage.waltz("storage", "forget", "-s", s3, "-p", "0-7", "--accept-data-loss")
    assert "`waltz storage forget --keep" in last.error()
    doctor = stage.waltz("doctor", "--output", "json").json
    assert {one["rule"] for one in doctor["findings"]} >= {"undecidable"}
    keep(stage)
    well(stage, "cluster", "verify", "--wait", "120")
    verdict = load.check()
    assert verdict.passed, str(verdict)


def test_all_copies_were_reset_and_the_tree_is_lost_too(stage: Stage, load: Load) -> None:
    key = well(stage, "zk", "show-cluster-key").out.strip()
    for server in SERVERS:
        stage.stop(server)
    reset_all(stage)
    stage.until(lambda: stage.waltz("storage", "sync-partitions").code == 0, "all nodes answer")
    lose_zookeeper(stage)
    given = [f"--node={stage.node(n)}/{stage.ports[n]['admin']}/{n[1:]}" for n in NODES]
    rebuild = ("zk", "rebuild", "-n", "demo", "-k", key, "-p", "8", "--copies", "3", *given, "--yes")
    well(stage, *rebuild)
    start(stage, *SERVERS)
    keep(stage)
    well(stage, "cluster", "verify", "--wait", "120")
    verdict = load.check()
    assert verdict.passed, str(verdict)
    assert (
        "serves it: nothing is to be given up"
        in stage.waltz("storage", "forget", "--keep", stage.node("s1"), "-p", "0", "--dry-run").error()
    )
