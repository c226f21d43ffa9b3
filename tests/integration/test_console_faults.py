"""Staged faults: within five seconds the right finding is on the console's page, every page shows the cluster
as it is, and the next step that the finding names repairs it.

The five seconds begin with the effect of the fault. Where the cluster has to notice first, that is said: a
server that is gone stays registered for ZooKeeper's session timeout, a full disk is one at the first append
that does not fit.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.integration.console_stage import Watched, commands_of, watched
from tests.integration.processes import small_disk
from tests.integration.replicas import administrator
from waltz_admin.server_admin import registered_servers
from waltz_client import LockConflictError, LockId, WaltzClient
from waltz_client.errors import AppendError
from waltz_cluster.paths import ClusterPaths
from waltz_tools.local.http import get_json

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

KIB = 1024
DATA_BYTES = 128 * KIB
ALL = "0,1"


# ---- storage nodes


async def a_node_is_killed(w: Watched) -> None:
    await w.cluster.kill_role("storage-2")
    (found,) = await w.found("node-silent")
    assert "restart it with its data" in found["next_step"]
    await w.look("a storage node killed", "does not answer", "unreachable", thorough=True)
    await w.cluster.start_role("storage-2")


async def two_nodes_are_killed(w: Watched) -> None:
    for role in ("storage-1", "storage-2"):
        await w.cluster.kill_role(role)
    (found,) = await w.found("no-quorum")
    assert "with the data they have" in found["next_step"]
    page = await w.ask("partitions/0")
    assert page["takes_writes"] is False
    assert [one["votes"] for one in page["replicas"]].count(True) == 1
    for role in ("storage-1", "storage-2"):
        await w.cluster.start_role(role)


async def a_copy_is_switched_off(w: Watched) -> None:
    admin = str(w.cluster.admin_endpoint("storage-3"))
    await w.waltz("storage", "availability", "-s", admin, "-p", "0", "-o", "false")
    (found,) = await w.found("replica-unavailable")
    switched_on = next(one for one in commands_of(found["next_step"]) if "availability" in one)
    assert switched_on == ["waltz", "storage", "availability", "-p", "0", "-o", "true"]
    await w.waltz(*switched_on[1:], "-s", admin)


async def a_copy_is_not_on_its_node(w: Watched) -> None:
    """An empty disk: its partitions are not there until they are assigned, and then they are refilled."""
    await _restart_with(w, "storage-1", None)
    (found,) = await w.found("replica-unassigned")
    assert await w.carry_out(found) == ["waltz storage sync-partitions"]
    await w.append()


async def a_disk_is_an_older_copy(w: Watched, tmp: Path) -> None:
    """While no server runs, nothing refills it."""
    await w.cluster.stop_role("storage-3")
    older = tmp / "older"
    shutil.copytree(w.cluster.storage_directory("storage-3"), older)
    await w.cluster.start_role("storage-3")
    await _restart_servers(w)
    await w.append()
    async with administrator(w.cluster) as admin:
        await admin.wait_complete()
    for role in w.cluster.server_roles:
        await w.cluster.stop_role(role)
    await _restart_with(w, "storage-3", older)
    (found,) = await w.found("replica-set-back")
    assert "leave it running: it is filled again" in found["next_step"]
    (first,) = await w.found("no-server")
    assert "start a server" in first["next_step"]
    for role in w.cluster.server_roles:
        await w.cluster.start_role(role)


async def nobody_can_decide(w: Watched) -> None:
    """One disk is lost, and the node that may hold what it held is away."""
    await w.cluster.kill_role("storage-2")
    await _restart_with(w, "storage-1", None)
    admin = str(w.cluster.admin_endpoint("storage-1"))
    await w.waltz("storage", "add-partition", "-s", admin, "-p", ALL)
    found = (await w.found("undecidable"))[0]
    node = w.cluster.storage_endpoint("storage-2")
    assert f"bring {node} back with its data first" in found["next_step"]
    await w.look("an undecidable recovery", "No partition takes writes", "set back", "no writes")
    await w.cluster.start_role("storage-2")


async def _restart_with(w: Watched, role: str, copy: Path | None) -> None:
    """With another directory: a copy, or an empty one."""
    if w.cluster.is_running(role):
        await w.cluster.stop_role(role)
    directory = w.cluster.storage_directory(role)
    shutil.rmtree(directory)
    if copy is None:
        directory.mkdir()
    else:
        shutil.copytree(copy, directory)
    await w.cluster.start_role(role)


# ---- servers, ZooKeeper, the network


async def _restart_servers(w: Watched) -> None:
    for role in w.cluster.server_roles:
        await w.cluster.restart_role(role)


async def a_server_is_killed(w: Watched) -> None:
    """It does not answer at once; ZooKeeper has it for the session timeout, then the other one takes over."""
    await w.cluster.kill_role("server-1")
    (found,) = await w.found("server-silent")
    assert "the others take over" in found["next_step"]
    await w.look("a server killed")
    await w.until_well()
    await w.cluster.start_role("server-1")


async def all_servers_are_killed(w: Watched) -> None:
    """The effect begins when ZooKeeper forgets them."""
    for role in w.cluster.server_roles:
        await w.cluster.kill_role(role)
    async with administrator(w.cluster) as admin:
        while await registered_servers(admin.store, admin.root):
            await asyncio.sleep(0.05)
    (found,) = await w.found("no-server")
    assert "start a server" in found["next_step"]
    for role in w.cluster.server_roles:
        await w.cluster.start_role(role)


async def zookeeper_is_restored_from_an_older_copy(w: Watched) -> None:
    """The effect begins when a server is registered that reads it."""
    async with administrator(w.cluster) as admin:
        paths = [ClusterPaths(admin.root).partition(number) for number in (0, 1)]
        copies = {path: (await admin.store.get(path))[0] or b"" for path in paths}
        await _restart_servers(w)
        await w.append()
        await admin.wait_complete()
        for role in w.cluster.server_roles:
            await w.cluster.stop_role(role)
        for path, copy in copies.items():
            await admin.store.set(path, copy)
    for role in w.cluster.server_roles:
        await w.cluster.start_role(role, wait=False)
    for role in w.cluster.server_roles:
        await _until_registered(w, role)
    found = await w.found("zookeeper-older")
    for one in found:
        (dry,) = commands_of(one["next_step"])
        assert dry[-1] == "--dry-run"
        await w.waltz(*dry[1:])
        await w.waltz(*dry[1:-1])
    for role in w.cluster.server_roles:
        await w.cluster.wait_ready(role)


async def _until_registered(w: Watched, role: str) -> None:
    name = str(w.cluster.server_endpoint(role))
    async with asyncio.timeout(30):
        while name not in {one["server"] for one in (await w.ask("nodes")).get("servers", [])}:
            await asyncio.sleep(0.05)


async def a_server_is_cut_off_from_a_node(w: Watched, faults: Path) -> None:
    """Its new connections fail, those that it has live on: a firewall in between."""
    pid = str(w.cluster.pid("server-1"))

    def connections(command: str) -> None:
        subprocess.run(["fiu-ctrl", "-f", str(faults), "-c", command, pid], check=True, timeout=10)

    connections("enable name=posix/io/net/connect,failinfo=113")
    await w.cluster.restart_role("storage-2")
    server, node = w.cluster.server_endpoint("server-1"), w.cluster.storage_endpoint("storage-2")
    while (found := (await w.found("server-cut-off"))[0])["servers"] != [str(server)]:
        await asyncio.sleep(0.1)  # the other server has not noticed yet that the node is back
    assert found["finding"] == f"server {server} does not reach {node}"
    (command,) = commands_of(found["next_step"])
    shown = await w.waltz(*command[1:], code=3)
    assert str(node) in shown.out
    connections("disable name=posix/io/net/connect")


# ---- the disk


async def a_disk_is_full(w: Watched, disk: Path) -> None:
    """The effect begins with the first append that does not fit."""
    payload = bytes(DATA_BYTES)
    async with WaltzClient.connect(w.cluster.client_config) as client:
        while "the disk is full" not in str(
            (await get_json(w.cluster.port("storage-3", "http"), "/health"))[1]
        ):
            with contextlib.suppress(AppendError):
                await client.append(partition=0, data=payload, deadline_seconds=5)
    (found,) = await w.found("disk-full")
    assert "enlarge the file system" in found["next_step"]
    await w.look("a full disk", "disk full", "take no appends")
    subprocess.run(["mount", "-o", f"remount,size={256 * KIB}k", str(disk)], check=True)


# ---- no fault: load, and a migration


async def under_load(w: Watched) -> None:
    """Appends, conflicts, a client that follows: the figures of the pages are there."""
    lock = LockId.of("account", "alice")

    async def contend(one: WaltzClient, other: WaltzClient) -> None:
        while True:
            await one.append(partition=1, data=b"won", write_locks=[lock])
            with contextlib.suppress(LockConflictError):
                await other.append(partition=1, data=b"lost", write_locks=[lock], as_of=-1)

    async with (
        WaltzClient.connect(w.cluster.client_config) as one,
        WaltzClient.connect(w.cluster.client_config) as other,
        asyncio.TaskGroup() as group,
    ):
        load = group.create_task(contend(one, other))
        async with asyncio.timeout(30):
            while not (await w.ask("locks")).get("rows"):
                await asyncio.sleep(0.1)
            while (await w.ask("overview"))["latency"]["p50_seconds"] is None:
                await asyncio.sleep(0.1)
        (row, *_) = (await w.ask("locks"))["rows"]
        assert row["lock"] == lock.hash
        clients = (await w.ask("clients"))["rows"]
        assert {row["winner"], row["loser"]} <= {row["client"] for row in clients}
        texts = ("was refused for", "conflicts", "up to date") if w.window is not None else ()
        await w.look("normal load", *texts[:1], thorough=True)
        load.cancel()


async def a_migration(w: Watched) -> None:
    """A copy moves to a new node: it is filled there, then the old one goes. Both are on the timeline. The
    old node has its copy until it is asked to drop it."""
    role = await w.cluster.add_storage_node()
    new, old = str(w.cluster.storage_endpoint(role)), str(w.cluster.storage_endpoint("storage-1"))
    await w.waltz("zk", "assign-partition", "-s", new, "-p", "0")
    await w.look("a migration", new)
    await w.append()
    await w.until_well()
    await w.waltz("zk", "unassign-partition", "-s", old, "-p", "0", "--drop-group-copy")
    async with asyncio.timeout(60):
        while old in {one["node"] for one in (await w.ask("partitions/0"))["replicas"]}:
            await asyncio.sleep(0.1)
    await w.append()
    timeline = [one["text"] for one in (await w.ask("partitions/0"))["timeline"]]
    added = [text for text in timeline if text.startswith(new) and "added as a replica" in text]
    assert added, timeline
    assert any(f"{old}, partition 0: no longer a replica" in text for text in timeline), timeline
    (found,) = await w.found("replica-surplus")
    assert await w.carry_out(found) == ["waltz storage sync-partitions --remove-surplus"]


Stage = Callable[[Watched], Awaitable[None]]


@contextlib.asynccontextmanager
async def staged(w: Watched) -> AsyncIterator[None]:
    await w.until_well()
    yield
    await w.until_well()


async def test_load_and_a_node_that_is_away(tmp_path: Path) -> None:
    async with watched(tmp_path / "cluster") as w:
        for stage in (under_load, a_node_is_killed, a_copy_is_switched_off):
            async with staged(w):
                await stage(w)
        print("from fault to finding:", {rule: f"{took:.2f} s" for rule, took in w.took.items()})


async def test_no_majority_and_lost_disks(tmp_path: Path) -> None:
    async with watched(tmp_path / "cluster") as w:
        for stage in (two_nodes_are_killed, a_copy_is_not_on_its_node, nobody_can_decide):
            async with staged(w):
                await stage(w)
        texts = [one["text"] for one in (await w.ask("changes"))["log"]]
        assert any("no writes" in text for text in texts)
        assert any("takes writes again" in text for text in texts)
        timeline = [one["text"] for one in (await w.ask("partitions/0"))["timeline"]]
        assert any(" s without" in text for text in timeline)
        print("from fault to finding:", {rule: f"{took:.2f} s" for rule, took in w.took.items()})


async def test_servers_and_zookeeper(tmp_path: Path) -> None:
    async with watched(tmp_path / "cluster") as w:
        for stage in (a_server_is_killed, all_servers_are_killed, zookeeper_is_restored_from_an_older_copy):
            async with staged(w):
                await stage(w)
        print("from fault to finding:", {rule: f"{took:.2f} s" for rule, took in w.took.items()})


async def test_an_older_disk_and_a_migration(tmp_path: Path) -> None:
    async with watched(tmp_path / "cluster") as w:
        async with staged(w):
            await a_disk_is_an_older_copy(w, tmp_path)
        async with staged(w):
            await a_migration(w)
        print("from fault to finding:", {rule: f"{took:.2f} s" for rule, took in w.took.items()})


async def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "cluster" / "storage-3", 6 * KIB) as disk:
        async with watched(tmp_path / "cluster") as w, staged(w):
            await a_disk_is_full(w, disk)
            print("from fault to finding:", w.took)


async def test_a_server_that_is_cut_off(tmp_path: Path) -> None:
    if shutil.which("fiu-run") is None:
        pytest.skip("no failing connections: fiu-run is not installed (Debian: fiu-utils)")
    faults = tmp_path / "fiu"
    wrapper = {"server-1": ("fiu-run", "-x", "-f", str(faults))}
    async with watched(tmp_path / "cluster", wrappers=wrapper) as w, staged(w):
        await a_server_is_cut_off_from_a_node(w, faults)
        print("from fault to finding:", w.took)
