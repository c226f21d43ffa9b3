"""`waltz storage replace` under load: interrupted and run again, with a dead old node, and refused when it
would be unsafe.

The tests build on one another, in the order of the file. What was acknowledged to the load is in the log at
the end.
"""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.cli.blocks import blocks
from tests.integration.cli.live import SECONDS, Done
from tests.integration.cli.stage import Load, Stage, open_stage
from tests.integration.processes import WALTZ
from tests.repo.files import ROOT

pytestmark = [pytest.mark.long, pytest.mark.staged, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    (new,) = [b for b in blocks(ROOT / "docs" / "operations.md", ROOT) if b.run == "new-cluster"]
    with open_stage(tmp_path_factory.mktemp("stage")) as opened:
        opened.follow(new)
        yield opened


@pytest.fixture(scope="module")
def load(stage: Stage) -> Iterator[Load]:
    found = Load(stage.config)
    found.start()
    yield found
    found.stop()


def _replace(stage: Stage, old: str, new: str) -> list[str]:
    ports = stage.ports[new]
    return [
        *("storage", "replace", "--old", stage.node(old), "--new", stage.node(new)),
        *("--new-admin-port", str(ports["admin"]), "--at-once", "3", "--timeout", "120", "--yes"),
    ]


def _holders(stage: Stage) -> dict[str, list[int]]:
    names = {stage.node(name): name for name in stage.ports if name.startswith("s")}
    done = stage.waltz("zk", "list", "--output", "json")
    assert done.code == 0, done
    held: dict[str, list[int]] = {}
    for node in done.json["storage_nodes"]:
        partitions = node["partitions"]
        assert isinstance(partitions, list)
        held[names[str(node["node"])]] = partitions
    return held


def test_killed_in_the_middle_and_run_again(stage: Stage, load: Load) -> None:
    stage.start("s4")
    command = [*WALTZ, *_replace(stage, "s3", "s4")]
    environment = {**os.environ, "WALTZ_CONFIG": stage.config}
    kills = 0
    for pause in (1.0, 1.5, 2.0, 2.5, 3.0):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            process.wait(pause)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate(timeout=SECONDS)
    assert kills
    done = stage.waltz(*_replace(stage, "s3", "s4"))
    assert done.code == 0, done
    assert _holders(stage) == {name: list(range(8)) for name in ("s1", "s2", "s4")}
    again = stage.waltz(*_replace(stage, "s3", "s4"), "--dry-run")
    assert again.code == 0
    assert again.out.startswith(f"nothing to do: {stage.node('s3')} is not a storage node of the cluster")
    assert stage.waltz("cluster", "verify", "--wait", "120").code == 0
    held = stage.waltz("storage", "list", "-s", f"127.0.0.1:{stage.ports['s3']['admin']}", "--output", "json")
    assert held.json["partitions"] == []
    stage.stop("s3")


def test_a_dead_node_is_replaced(stage: Stage, load: Load) -> None:
    stage.stop("s2", signal.SIGKILL)
    before = len(load.history.acknowledged)
    enough = before + 50  # the others continue without it
    stage.until(lambda: len(load.history.acknowledged) >= enough, "50 more appends without s2", load=load)
    stage.start("s5")
    plan = _until_planned(stage, "s2", "s5")
    assert "which takes no part" in plan
    done = stage.waltz(*_replace(stage, "s2", "s5"))
    assert done.code == 0, done
    assert "never start it on its old directory again" in done.out
    assert _holders(stage) == {name: list(range(8)) for name in ("s1", "s4", "s5")}
    assert stage.waltz("cluster", "verify", "--wait", "120").code == 0


def _until_planned(stage: Stage, old: str, new: str) -> str:
    """The new node needs a moment to listen."""
    done: list[Done] = []

    def planned() -> bool:
        done.append(stage.waltz(*_replace(stage, old, new), "--dry-run"))
        return done[-1].code == 0

    stage.until(planned, f"a plan to replace {old} by {new}")
    return done[-1].out


def test_it_is_refused_when_something_could_be_lost(stage: Stage, load: Load) -> None:
    """Of the replicas that stay one is down: the others are no quorum of old and new."""
    stage.start("s6")
    _until_planned(stage, "s4", "s6")
    stage.stop("s5", signal.SIGKILL)
    before = _holders(stage)
    done = stage.waltz(*_replace(stage, "s4", "s6"))
    assert done.code == 1
    assert "are proven to be current" in done.error()
    after = _holders(stage)
    assert {name: after[name] for name in before} == before
    stage.start("s5")
    wrong = stage.waltz(*_replace(stage, "s4", "s4"))
    assert "cannot be replaced with itself" in wrong.error()
    unknown = stage.waltz(*_replace(stage, "s7", "s3"))
    assert unknown.code == 1
    for more in ((), ("--dry-run",)):
        alias = [*_replace(stage, "s4", "s6"), *more]
        alias[alias.index("--new") + 1] = stage.node("s4").replace("127.0.0.1", "localhost")
        alias[alias.index("--new-admin-port") + 1] = str(stage.ports["s4"]["admin"])
        done = stage.waltz(*alias)
        assert done.code == 1
        assert f"is the storage node {stage.node('s4')}, which is known already" in done.error()


def test_nothing_acknowledged_was_lost(stage: Stage, load: Load) -> None:
    load.stop()
    verdict = load.check()
    assert verdict.transactions > 100
    assert verdict.passed, str(verdict)
