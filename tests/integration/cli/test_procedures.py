"""Every procedure of docs/operations.md, command by command, on one cluster that is under load all the time.

The tests of this module build on one another, in the order of the file: each finds the cluster as the one
before left it. What was acknowledged to the load has to be in the log at the end, at its place and once.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.blocks import Block, blocks
from tests.integration.cli.live import until_open
from tests.integration.cli.stage import Load, Stage, open_stage
from tests.repo.files import ROOT
from waltz_cluster.paths import ClusterPaths
from waltz_storage.engine.files import OsFileSystem
from waltz_storage.engine.sidecar import Sidecar
from waltz_tools.cli.common import Context, run_admin

pytestmark = [pytest.mark.staged, pytest.mark.timeout(300)]

BLOCKS = {
    block.run: block for block in blocks(ROOT / "docs" / "operations.md", ROOT) if block.run is not None
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("stage")) as opened:
        yield opened


@pytest.fixture(scope="module")
def load(stage: Stage) -> Iterator[Load]:
    """Runs from its first use until `stop`."""
    found = Load(stage.config)
    found.start()
    yield found
    found.stop()


def block(name: str) -> Block:
    return BLOCKS[name]


def test_every_marked_block_is_run_here() -> None:
    source = (ROOT / "tests" / "integration" / "cli" / "test_procedures.py").read_text()
    assert [name for name in BLOCKS if f'block("{name}")' not in source] == []


def test_a_new_cluster(stage: Stage) -> None:
    stage.follow(block("new-cluster"))


def test_is_all_well(stage: Stage, load: Load) -> None:
    stage.follow(block("all-well"))


def test_a_node_was_down(stage: Stage, load: Load) -> None:
    stage.stop("s2")
    before = len(load.history.acknowledged)

    def enough() -> bool:
        stage.waltz("cluster", "verify")
        return len(load.history.acknowledged) >= before + 20

    stage.until(enough, "20 more appends without s2", load=load)
    assert "s2" not in stage.processes
    stage.follow(block("node-was-down"))


def test_an_empty_disk(stage: Stage, load: Load) -> None:
    stage.lose_disk("s2")
    stage.follow(block("empty-disk"))


def test_a_damaged_partition(stage: Stage, load: Load) -> None:
    stage.stop("s1")
    for path in (stage.data("s1") / "3").iterdir():
        path.unlink()
    stage.start("s1")
    until_open(stage.ports["s1"]["admin"], stage.processes["s1"], stage.directory / "s1.log")
    assert "waltz-fence and 0000000000000000000.seg" in (stage.directory / "s1.log").read_text()
    stage.follow(block("damage"))


def test_a_lost_witness(stage: Stage, load: Load) -> None:
    stage.stop("s1")
    (stage.data("s1") / "waltz-witness").unlink()
    stage.follow(block("lost-witness"))


def test_disks(stage: Stage, load: Load) -> None:
    usage, _ = stage.follow(block("disks"))
    assert usage.out.count("iB") > 6


def test_a_restored_directory(stage: Stage, load: Load) -> None:
    stage.back_up("s1")
    assert stage.waltz("cluster", "verify", "--wait", "120").code == 0
    newer = stage.data("s1") / "0" / "0000000000000999999.seg"  # a segment that was begun after the copy
    newer.write_bytes(bytes(1))
    stage.follow(block("restored"))
    assert not newer.exists()


def test_a_copy_past_the_servers(stage: Stage, load: Load) -> None:
    stage.follow(block("offline-copy"))


def test_replicas_are_added(stage: Stage, load: Load) -> None:
    stage.follow(block("add-replica"))
    stage.follow(block("add-replica-preloaded"))
    assert _replicas(stage) == {"s1", "s2", "s3", "s4", "s5"}


def test_replicas_are_removed(stage: Stage, load: Load) -> None:
    stage.follow(block("remove-replica"))
    stage.follow(block("remove-second-replica"))
    assert _replicas(stage) == {"s1", "s2", "s3"}
    assert not list(stage.data("s5").rglob("*.seg"))


def test_a_node_is_replaced(stage: Stage, load: Load) -> None:
    stage.follow(block("replace-node"))
    assert _replicas(stage) == {"s1", "s2", "s6"}
    stage.follow(block("replace-by-hand"))
    assert _replicas(stage) == {"s1", "s2", "s7"}
    assert not list(stage.data("s3").rglob("*.seg"))


def test_partitions_move_between_servers(stage: Stage, load: Load) -> None:
    stage.follow(block("move-partitions"))


def test_a_rolling_restart(stage: Stage, load: Load) -> None:
    stage.follow(block("rolling-restart"))


def test_zookeeper_is_put_back_from_an_older_copy(stage: Stage, load: Load) -> None:
    copies = _metadata(stage)
    for restarted in (False, True):
        for name in ("h1", "h2"):
            stage.stop(name)
        if restarted:
            _put_back(stage, copies)
        for name in ("h1", "h2"):
            stage.start(name)
        if not restarted:
            assert stage.waltz("cluster", "verify", "--wait", "120").code == 0
    stage.until(
        lambda: re.search(r"accept-restored -p 0\S* --dry-run", stage.waltz("doctor").out),
        "the fault is named",
    )
    status = stage.waltz("cluster", "status", "--output", "json")
    assert "ZooKeeper is older than its replicas" in status.out
    dry, written, *_ = stage.follow(block("zookeeper-put-back"))
    decides = (
        "the last one: decides"  # by one node at least in each, also where a stop interrupted a recovery
    )
    assert 8 <= dry.out.count(decides) == written.out.count(decides)
    assert "nothing to accept" in stage.waltz("zk", "accept-restored", "-p", "0-7").error()


def test_a_fence_that_is_too_high(stage: Stage, load: Load) -> None:
    stage.stop("s7")
    for partition in range(8):
        sidecar = Sidecar.open(OsFileSystem(), str(stage.data("s7") / str(partition)), partition)
        sidecar.raise_fence(2**63 - 1)
        sidecar.close()
    stage.start("s7")
    until_open(stage.ports["s7"]["admin"], stage.processes["s7"], stage.directory / "s7.log")
    _, dry, lowered, *_ = stage.follow(block("lower-fence"))
    assert dry.out.count("9223372036854775807 to ") == lowered.out.count("9223372036854775807 to ") == 8


def test_nothing_acknowledged_was_lost(stage: Stage, load: Load) -> None:
    load.stop()
    assert len(load.history.acknowledged) > 100
    verdict = load.check()
    assert verdict.passed, str(verdict)


def test_a_lost_disk_that_leaves_nothing_to_decide_by(stage: Stage, load: Load) -> None:
    """Two of three disks are gone; everything that was acknowledged is on the third.

    No server runs meanwhile: a session that begins after the first loss records that the replica is not in
    it, and then the third disk alone decides.
    """
    stage.until(lambda: stage.waltz("doctor").code == 0, "all three replicas are in the last sessions")
    for name in ("h1", "h2"):
        stage.stop(name)
    for name in ("s1", "s2"):
        stage.lose_disk(name)
        stage.start(name)
    stage.until(lambda: stage.waltz("storage", "sync-partitions").code == 0, "sync-partitions")
    for name in ("h1", "h2"):
        stage.start(name)
    stage.until(
        lambda: "waltz storage forget -s" in stage.waltz("doctor", "--output", "json").out,
        "the way out is named",
    )
    stage.follow(block("forget"))
    verdict = load.check()
    assert verdict.passed, str(verdict)


def test_the_cluster_is_deleted(stage: Stage) -> None:
    stage.follow(block("delete-cluster"))
    assert stage.waltz("zk", "list").code == 1


def _metadata(stage: Stage) -> dict[str, bytes]:
    """Of every partition, by path."""

    async def read(c: Context) -> dict[str, bytes]:
        paths = [ClusterPaths(c.root).partition(partition) for partition in range(8)]
        return {path: (await c.store.get(path))[0] or b"" for path in paths}

    return run_admin(Path(stage.config), read)


def _put_back(stage: Stage, copies: dict[str, bytes]) -> None:
    async def write(c: Context) -> None:
        for path, copy in copies.items():
            await c.store.set(path, copy)

    run_admin(Path(stage.config), write)


def _replicas(stage: Stage) -> set[str]:
    names = {stage.node(name): name for name in stage.ports if name.startswith("s")}
    listed = run_json(stage, "zk", "list")
    return {names[str(node["node"])] for node in listed["storage_nodes"] if node["partitions"]}


def run_json(stage: Stage, *arguments: str) -> dict[str, list[dict[str, object]]]:
    done = stage.waltz(*arguments, "--output", "json")
    assert done.code == 0, done
    return done.json
