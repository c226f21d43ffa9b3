"""ZooKeeper's data are lost: the tree comes back from an export, from an older one, and from the storage
nodes alone, and every acknowledged record is in the log, at its place and once.

The tests of this module build on one another, in the order of the file: each finds the cluster as the one
before left it.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.blocks import blocks
from tests.integration.cli.live import Done
from tests.integration.cli.stage import Load, Stage, open_stage
from tests.repo.files import ROOT

pytestmark = [pytest.mark.staged, pytest.mark.long, pytest.mark.timeout(300)]

NODES = ("s1", "s2", "s3")
SERVERS = ("h1", "h2")
RECORDS = 40


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


class Story:
    """What was acknowledged, by one load after another."""

    def __init__(self) -> None:
        self.load: Load | None = None

    def write(self, stage: Stage) -> None:
        """Append until so many more were acknowledged."""
        load = Load(stage.config, self.load.history if self.load is not None else None)
        before = len(load.history.acknowledged)
        load.start()
        stage.until(lambda: len(load.history.acknowledged) >= before + RECORDS, "appends", load=load)
        load.stop()
        self.load = load

    def check(self) -> int:
        """Number of acknowledged records; all of them are there."""
        assert self.load is not None
        verdict = self.load.check()
        assert verdict.passed, str(verdict)
        return len(self.load.history.acknowledged)


@pytest.fixture(scope="module")
def story() -> Story:
    return Story()


def well(stage: Stage, *arguments: str) -> Done:
    done = stage.waltz(*arguments)
    assert done.code == 0, (arguments, done)
    return done


def lose_zookeeper(stage: Stage) -> None:
    """Servers are stopped, its data are gone, and it is there again, empty."""
    stop_servers(stage)
    stage.zookeeper.kill()
    shutil.rmtree(stage.zookeeper.data_dir / "version-2")
    stage.zookeeper.start()
    assert "no cluster" in stage.waltz("zk", "list").error()


def stop_servers(stage: Stage) -> None:
    for name in SERVERS:
        if name in stage.processes:
            stage.stop(name)


def start_servers(stage: Stage) -> None:
    for name in SERVERS:
        stage.start(name)


def export(stage: Stage, name: str) -> Path:
    path = stage.directory / name
    well(stage, "zk", "export", str(path))
    return path


def rebuild(stage: Stage, key: str, *more: str, nodes: tuple[str, ...] = NODES, copies: int = 3) -> list[str]:
    given = [f"--node={stage.node(n)}/{stage.ports[n]['admin']}/{n[1:]}" for n in nodes]
    return ["zk", "rebuild", "-n", "demo", "-k", key, "-p", "8", "--copies", str(copies), *given, *more]


def test_an_export_brings_the_cluster_back(stage: Stage, story: Story) -> None:
    (block,) = [one for one in blocks(ROOT / "docs" / "operations.md", ROOT) if one.run == "new-cluster"]
    stage.follow(block)
    story.write(stage)
    stop_servers(stage)
    path = export(stage, "fresh.json")
    assert path.stat().st_mode & 0o777 == 0o600
    lose_zookeeper(stage)
    shown = well(stage, "zk", "import", str(path), "--dry-run", "--output", "json").json
    assert shown["older"] == []
    assert shown["silent"] == []
    assert "no cluster" in stage.waltz("zk", "list").error(), "a dry run puts nothing there"
    assert "--yes" in stage.waltz("zk", "import", str(path)).error(2)
    well(stage, "zk", "import", str(path), "--yes")
    assert "exactly like this" in well(stage, "zk", "import", str(path), "--yes").out
    start_servers(stage)
    well(stage, "cluster", "verify", "--wait", "120")
    assert story.check() >= RECORDS
    story.write(stage)


def test_an_older_export_is_found_out_and_brought_up_to_date(stage: Stage, story: Story) -> None:
    """Sessions ended and began since, and records were acknowledged in them."""
    older = export(stage, "older.json")
    stop_servers(stage)
    start_servers(stage)
    well(stage, "cluster", "verify", "--wait", "120")
    story.write(stage)
    assert "in another state: nothing was changed" in stage.waltz("zk", "import", str(older), "--yes").error()
    lose_zookeeper(stage)
    said = well(stage, "zk", "import", str(older), "--yes")
    assert "zk accept-restored -p 0,1,2,3,4,5,6,7" in said.out
    start_servers(stage)
    stage.until(
        lambda: re.search(r"accept-restored -p 0\S* --dry-run", stage.waltz("doctor").out),
        "the fault is named",
    )
    well(stage, "zk", "accept-restored", "-p", "0-7")
    well(stage, "cluster", "verify", "--wait", "120")
    assert story.check() >= 3 * RECORDS
    story.write(stage)


def test_without_any_export_the_nodes_say_what_there_is(stage: Stage, story: Story) -> None:
    key = well(stage, "zk", "show-cluster-key").out.strip()
    lose_zookeeper(stage)
    forgotten = stage.waltz(*rebuild(stage, key, "--yes", nodes=("s1", "s2")))
    assert "3 copies are to be found" in forgotten.error()
    wrong = stage.waltz(*rebuild(stage, "00000000-0000-0000-0000-000000000001", "--yes"))
    assert "key" in wrong.error()
    dry = well(stage, *rebuild(stage, key, "--dry-run"))
    assert dry.out.count("the last one: decides") >= 8
    assert "no cluster" in stage.waltz("zk", "list").error()
    well(stage, *rebuild(stage, key, "--yes"))
    assert "exactly like this" in well(stage, *rebuild(stage, key, "--yes")).out, "run again"
    start_servers(stage)
    well(stage, "cluster", "verify", "--wait", "120")
    assert story.check() >= 4 * RECORDS
    story.write(stage)


def test_a_lost_disk_besides_is_named_and_nothing_is_lost(stage: Stage, story: Story) -> None:
    key = well(stage, "zk", "show-cluster-key").out.strip()
    lose_zookeeper(stage)
    stage.stop("s2")
    shutil.rmtree(stage.data("s2"))
    stage.data("s2").mkdir()
    silent = stage.waltz(*rebuild(stage, key, "--yes"))
    assert "does not answer" in silent.error()
    assert "--lost" in silent.error()
    two = stage.waltz(
        *rebuild(stage, key, "--yes", f"--lost={stage.node('s1')}", f"--lost={stage.node('s2')}")
    )
    assert "answers with a copy" in two.error()
    well(stage, *rebuild(stage, key, "--yes", f"--lost={stage.node('s2')}"))
    stage.start("s2")
    start_servers(stage)
    stage.until(lambda: stage.waltz("storage", "sync-partitions").code == 0, "sync-partitions")
    for partition in range(8):
        given = well(stage, "zk", "list", "--output", "json").json["storage_nodes"]
        held = {str(one["node"]): one["partitions"] for one in given}
        assert str(partition) in json.dumps(held[stage.node("s1")])
    well(stage, "zk", "assign-partition", "-p", "0-7", "-s", stage.node("s2"))
    well(stage, "storage", "sync-partitions")
    well(stage, "cluster", "verify", "--wait", "120")
    assert story.check() >= 5 * RECORDS
