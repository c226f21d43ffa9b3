"""A server refuses a copy of a partition that it serves with the others, or does not open the partition: the
commands say so, with the server's reason, and what they advise ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.blocks import blocks
from tests.integration.cli.live import until_open
from tests.integration.cli.stage import Load, Stage, open_stage
from tests.repo.files import ROOT
from waltz_admin.storage_admin import admin_connection
from waltz_cluster.cluster_params import read_params
from waltz_cluster.paths import ClusterPaths
from waltz_protocol.aio.storage_connection import StorageConnection
from waltz_protocol.aio.tls import client_context
from waltz_protocol.types import Endpoint
from waltz_tools.cli.common import Context, run_admin

pytestmark = [pytest.mark.staged, pytest.mark.timeout(300)]

PARTITION, NODE, SERVERS = 3, "s3", ("h1", "h2")
FORK = "its log differs from that of the other replicas (fork)"
LATER = "it has completed session 1"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with open_stage(tmp_path_factory.mktemp("stage")) as opened:
        (block,) = [one for one in blocks(ROOT / "docs" / "operations.md", ROOT) if one.run == "new-cluster"]
        opened.follow(block)
        yield opened


@pytest.fixture(scope="module")
def load(stage: Stage) -> Load:
    found = Load(stage.config)
    found.start()
    stage.until(lambda: len(found.history.acknowledged) >= 80, "appends", load=found)
    found.stop()
    return found


def start(stage: Stage, name: str) -> None:
    stage.start(name)
    port = stage.ports[name]["http" if name in SERVERS else "admin"]
    until_open(port, stage.processes[name], stage.directory / f"{name}.log")


def restart_servers(stage: Stage) -> None:
    for name in SERVERS:
        stage.stop(name)
        start(stage, name)


async def _write(context: Context, stage: Stage, later: bool) -> None:
    _, params = await read_params(context.store, context.root)
    admin = Endpoint("127.0.0.1", stage.ports[NODE]["admin"])
    async with admin_connection(admin, params, context.tls) as connection:
        session = (await connection.last_session_info(PARTITION)).session_id + 1000 * later
    port = await StorageConnection.open(
        Endpoint("127.0.0.1", stage.ports[NODE]["storage"]),
        cluster_key=params.cluster_key,
        num_partitions=params.num_partitions,
        tls=client_context(context.tls),
    )
    _, last = await port.last_session_and_end(session, PARTITION)
    if later:
        await port.set_low_water_mark(session, PARTITION, last)
    else:
        (record,) = await port.record_list(session, PARTITION, last, 1)
        await port.truncate(session, PARTITION, last - 1)
        other = record._replace(req_id=record.req_id._replace(seq_num=record.req_id.seq_num + 1))
        await port.append(session, PARTITION, [other])
    port.close()
    await port.wait_closed()


def make_refused(stage: Stage, *, later: bool) -> None:
    """Its last record becomes another one, or it takes part in a session that ZooKeeper never gave out
    (`later`), while no server sees it; it comes when the others have opened the partition."""
    for name in SERVERS:
        stage.stop(name)
    run_admin(Path(stage.config), lambda context: _write(context, stage, later))
    stage.stop(NODE)
    for name in SERVERS:
        start(stage, name)
    stage.until(lambda: row(stage, "cluster", "status")["healthy"], "the others open it")
    start(stage, NODE)


def row(stage: Stage, *command: str) -> dict[str, object]:
    (found,) = [
        one
        for one in stage.waltz(*command, "--output", "json").json["partitions"]
        if one["partition"] == PARTITION
    ]
    return found


def finding(stage: Stage) -> dict[str, object]:
    """The one thing that is wrong, once it is that a copy is refused."""
    found: list[dict[str, object]] = []

    def refused() -> bool:
        found[:] = stage.waltz("doctor", "--output", "json").json["findings"]
        return [one["rule"] for one in found] == ["replica-refused"]

    stage.until(refused, "the copy is refused, and nothing else is wrong")
    assert (found[0]["partitions"], found[0]["nodes"]) == ([PARTITION], [stage.node(NODE)])
    assert "wait" not in str(found[0]["next_step"])
    return found[0]


def test_a_fork_is_named_by_every_command_and_filled_anew(stage: Stage, load: Load) -> None:
    make_refused(stage, later=False)
    found = finding(stage)
    assert found["finding"] == f"{stage.node(NODE)}, partitions {PARTITION}: the server refuses it: {FORK}"
    said = f"{stage.node(NODE)} is refused ({FORK})"
    assert row(stage, "cluster", "status")["problem"] == said
    assert said in stage.waltz("explain", "partition", str(PARTITION)).out
    verify = stage.waltz("cluster", "verify", "--output", "json").json["checks"]
    reasons = [one["reason"] for one in verify if not one["passed"]]
    assert reasons == [f"{stage.node(NODE)}: its server refuses it: {FORK}"]
    assert (
        f"`waltz storage remove-partition -p {PARTITION} --delete-storage-files` and `add-partition`"
        in str(found["next_step"])
    )
    at = ("-s", f"127.0.0.1:{stage.ports[NODE]['admin']}", "-p", str(PARTITION))
    for command in (("remove-partition", *at, "--delete-storage-files", "--yes"), ("add-partition", *at)):
        assert stage.waltz("storage", *command).code == 0
    assert stage.waltz("cluster", "verify", "--wait", "120").code == 0


def test_a_later_session_is_named_and_the_reset_copy_is_taken_back(stage: Stage, load: Load) -> None:
    make_refused(stage, later=True)
    found = finding(stage)
    assert f"the server refuses it: {LATER}" in str(found["finding"])
    assert "`waltz storage restore-reset DIR` on its directory" in str(found["next_step"])
    restart_servers(stage)  # too early: a session that hears of it does not open before this is settled

    def closed() -> bool:
        rules = stage.waltz("doctor", "--output", "json").out
        if "replica-refused" in rules:  # the node was late, and the others opened it without
            restart_servers(stage)
        return "zookeeper-older" in rules

    stage.until(closed, "it is closed")
    stage.stop(NODE)
    assert stage.waltz("storage", "restore-reset", str(stage.data(NODE)), "--yes").code == 0
    start(stage, NODE)
    assert stage.waltz("cluster", "verify", "--wait", "120").code == 0
    verdict = load.check()
    assert verdict.passed, str(verdict)


def test_a_fault_that_only_the_server_knows_is_named_by_every_command(stage: Stage, load: Load) -> None:
    """The metadata of the partition are gone: nothing is wrong with its copies."""
    taken: list[bytes | None] = []

    async def take(context: Context) -> None:
        path = ClusterPaths(context.root).partition(PARTITION)
        taken.append((await context.store.get(path))[0])
        await context.store.delete(path)

    async def restore(context: Context) -> None:
        await context.store.create(ClusterPaths(context.root).partition(PARTITION), taken[0] or b"")

    for name in SERVERS:
        stage.stop(name)
    run_admin(Path(stage.config), take)
    for name in SERVERS:
        start(stage, name)
    found: list[dict[str, object]] = []

    def in_fault() -> bool:
        all_found = stage.waltz("doctor", "--output", "json").json["findings"]
        found[:] = [one for one in all_found if one["rule"] == "fault"]
        return bool(found)

    stage.until(in_fault, "the server reports a fault")
    reason = "reports fault: partition metadata is missing, and ZooKeeper shows that metadata was deleted"
    assert reason in str(found[0]["finding"])
    assert str(found[0]["next_step"]).startswith("restore ZooKeeper's data from a copy")
    assert reason in str(row(stage, "cluster", "status")["problem"])
    assert reason in stage.waltz("explain", "partition", str(PARTITION)).out
    verify = stage.waltz("cluster", "verify", "--output", "json").json["checks"]
    (health,) = [
        one for one in verify if one["check"] == "SERVER_PARTITION_HEALTH_CHECK" and not one["passed"]
    ]
    assert reason in str(health["reason"])
    run_admin(Path(stage.config), restore)
    assert stage.waltz("cluster", "verify", "--wait", "120").code == 0
    verdict = load.check()
    assert verdict.passed, str(verdict)
