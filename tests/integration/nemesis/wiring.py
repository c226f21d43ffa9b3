"""A local cluster whose roles know each other, and ZooKeeper, only by the addresses of the fault proxy."""

import os
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.integration.nemesis.peers import Peers
from tests.integration.nemesis.plan import ADMIN, ZOOKEEPER
from tests.integration.nemesis.proxy import LOOPBACK, FaultProxy
from waltz_testkit.ports import free_ports
from waltz_tools.local import LocalCluster, LocalSettings

_PUBLISHED = {"storage": ("storage", "admin"), "server": ("server",), ZOOKEEPER: ("client",)}


class ProxiedCluster(LocalCluster):
    """`port` is what others use. ZooKeeper is the exception: its own port is what readiness is asked
    at."""

    def __init__(self, settings: LocalSettings, published: Mapping[tuple[str, str], int]) -> None:
        super().__init__(settings)
        self._published = published

    def port(self, role: str, name: str) -> int:
        if role == ZOOKEEPER:
            return super().port(role, name)
        return self._published.get((role, name)) or super().port(role, name)

    def real_port(self, role: str, name: str) -> int:
        """Where the role listens."""
        return super().port(role, name)

    def exit_code(self, role: str) -> int | None:
        """Of its last process; None while it runs or before it ran."""
        return self._process(role).exit_code

    def running_pids(self) -> dict[str, int]:
        """Process ids of the roles that run."""
        return {role: self.pid(role) for role in self.roles if self.is_running(role)}


@asynccontextmanager
async def proxied_cluster(
    settings: LocalSettings,
    rng: random.Random,
    client_pids: Callable[[], Mapping[str, int]],
) -> AsyncIterator[tuple[ProxiedCluster, FaultProxy]]:
    """The cluster, up, and the proxy between everybody. `settings` must say how many nodes and servers there
    are."""
    published = _pick_ports(settings)
    connect = {"zookeeper.connectString": f"{LOOPBACK}:{published[ZOOKEEPER, 'client']}"}
    overrides = {name: dict(keys) for name, keys in settings.overrides.items()}
    for kind in ("storage", "server", "client"):
        overrides.setdefault(kind, {}).update(connect)
    for role, name in published:
        if name == "server":
            overrides.setdefault(role, {})["server.advertised.port"] = published[role, name]
    cluster = ProxiedCluster(replace(settings, overrides=overrides), published)
    peers = Peers(lambda: {**cluster.running_pids(), **client_pids(), ADMIN: os.getpid()})
    proxy = FaultProxy(peers.who, rng)
    try:
        for (role, name), port in published.items():
            await proxy.listen(role, port, lambda role=role, name=name: cluster.real_port(role, name))  # type: ignore[misc]
        async with cluster:
            yield cluster, proxy
    finally:
        await proxy.close()


def _pick_ports(settings: LocalSettings) -> dict[tuple[str, str], int]:
    roles = [
        *(f"storage-{number}" for number in range(1, (settings.storage_nodes or 3) + 1)),
        *(f"server-{number}" for number in range(1, (settings.servers or 2) + 1)),
        ZOOKEEPER,
    ]
    names = [(role, name) for role in roles for name in _PUBLISHED[role.partition("-")[0]]]
    return dict(zip(names, free_ports(len(names)), strict=True))
