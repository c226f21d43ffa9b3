"""Every procedure of docs/operations.md, command by command, on one cluster that is under load all the time.

The tests of this module build on one another, in the order of the file: each finds the cluster as the one before left it.
What the load was told is committed has to be in the log at the end, at its place and once.
"""

from collections.abc import Iterator

import pytest

from tests.integration.cli.blocks import Block, blocks
from tests.integration.cli.live import until_open
from tests.integration.cli.stage import Load, Stage, open_stage
from tests.repo.files import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.staged, pytest.mark.timeout(300)]

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
    stage.follow(block("restored"))


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


def test_nothing_acknowledged_was_lost(stage: Stage, load: Load) -> None:
    load.stop()
    assert len(load.history.acknowledged) > 100
    verdict = load.check()
    assert verdict.passed, str(verdict)


def test_a_lost_disk_that_leaves_nothing_to_decide_by(stage: Stage, load: Load) -> None:
    """Two of three disks are gone; everything that was acknowledged is on the third."""
    for name in ("s1", "s2"):
        stage.lose_disk(name)
    for name in ("s1", "s2"):
        stage.start(name)
    stage.until(lambda: stage.waltz("storage", "sync-partitions").code == 0, "sync-partitions")
    stage.stop("h1")
    stage.start("h1")
    doctor = stage.waltz("doctor")
    assert doctor.code == 3
    stage.follow(block("forget"))
    verdict = load.check()
    assert verdict.passed, str(verdict)


def test_the_cluster_is_deleted(stage: Stage) -> None:
    stage.follow(block("delete-cluster"))
    assert stage.waltz("zk", "list").code == 1


def _replicas(stage: Stage) -> set[str]:
    names = {stage.node(name): name for name in stage.ports if name.startswith("s")}
    listed = run_json(stage, "zk", "list")
    return {names[str(node["node"])] for node in listed["storage_nodes"] if node["partitions"]}


def run_json(stage: Stage, *arguments: str) -> dict[str, list[dict[str, object]]]:
    done = stage.waltz(*arguments, "--output", "json")
    assert done.code == 0, done
    return done.json
