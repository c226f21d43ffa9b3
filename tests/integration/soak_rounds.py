"""What is done to the cluster, one function a round. Each leaves every process running and every replica
caught up."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from tests.integration.replicas import Administrator
from waltz_admin import storage_admin
from waltz_tools.local import LocalCluster
from waltz_tools.stopped_node import restore_reset

_DOWN_SECONDS = 0.5


@dataclass(frozen=True)
class Round:
    """One disturbance: its name, and what does it."""

    name: str
    run: Callable[[LocalCluster, Administrator], Awaitable[None]]


@dataclass(frozen=True)
class Plan:
    """How long and how much."""

    kills: int = 20
    pause_seconds: float = 60.0


def rounds(cluster: LocalCluster, plan: Plan) -> list[Round]:
    """All rounds of a soak, in order."""
    roles = [*cluster.storage_roles, *cluster.server_roles, "zookeeper"]
    kills = [Round(f"SIGKILL {role}", _kill(role)) for role in islice(cycle(roles), plan.kills)]
    first, second = cluster.storage_roles[0], cluster.storage_roles[1]
    return [
        *kills,
        Round("rolling restart of every process", _rolling_restart),
        Round(f"{first} stopped for {plan.pause_seconds:g} s", _pause(first, plan.pause_seconds)),
        Round("ZooKeeper restarted", _restart("zookeeper")),
        Round(f"directory of {first} deleted", _delete_directory(first)),
        Round(f"directory of {second} restored from an older copy", _restore_older_copy(second)),
        Round("replica added (3 to 4)", _add_node),
        Round("replica added (4 to 5)", _add_node),
        Round("replica removed (5 to 4)", _remove_node),
        Round("replica removed (4 to 3)", _remove_node),
    ]


def _kill(role: str) -> Callable[[LocalCluster, Administrator], Awaitable[None]]:
    async def run(cluster: LocalCluster, admin: Administrator) -> None:
        await cluster.kill_role(role)
        await asyncio.sleep(_DOWN_SECONDS)
        await cluster.start_role(role)

    return run


def _restart(role: str) -> Callable[[LocalCluster, Administrator], Awaitable[None]]:
    async def run(cluster: LocalCluster, admin: Administrator) -> None:
        await cluster.restart_role(role)

    return run


def _pause(role: str, seconds: float) -> Callable[[LocalCluster, Administrator], Awaitable[None]]:
    async def run(cluster: LocalCluster, admin: Administrator) -> None:
        cluster.pause_role(role)
        try:
            await asyncio.sleep(seconds)
        finally:
            cluster.resume_role(role)

    return run


async def _rolling_restart(cluster: LocalCluster, admin: Administrator) -> None:
    for role in [*cluster.storage_roles, *cluster.server_roles]:
        await cluster.restart_role(role)
        await admin.wait_complete()
    await cluster.restart_role("zookeeper")


def _delete_directory(role: str) -> Callable[[LocalCluster, Administrator], Awaitable[None]]:
    async def run(cluster: LocalCluster, admin: Administrator) -> None:
        directory = cluster.storage_directory(role)
        await cluster.kill_role(role)
        shutil.rmtree(directory)
        directory.mkdir()
        await cluster.start_role(role)
        # An empty disk takes part again only when an administrator says so.
        report = await storage_admin.sync_partitions(admin.store, admin.root, tls=admin.tls)
        if not report.complete:
            raise AssertionError(f"sync-partitions failed: {report.failed}")

    return run


def _restore_older_copy(role: str) -> Callable[[LocalCluster, Administrator], Awaitable[None]]:
    async def run(cluster: LocalCluster, admin: Administrator) -> None:
        directory = cluster.storage_directory(role)
        copy = Path(f"{directory}.copy")
        await cluster.stop_role(role)
        shutil.copytree(directory, copy)
        await cluster.start_role(role)
        await admin.wait_complete()
        await asyncio.sleep(2 * _DOWN_SECONDS)  # the load continues: the copy falls behind
        await cluster.kill_role(role)
        shutil.rmtree(directory)
        copy.rename(directory)
        restore_reset(directory, None)
        await cluster.start_role(role)

    return run


async def _add_node(cluster: LocalCluster, admin: Administrator) -> None:
    await cluster.add_storage_node()


async def _remove_node(cluster: LocalCluster, admin: Administrator) -> None:
    await cluster.remove_storage_node(cluster.storage_roles[-1])
