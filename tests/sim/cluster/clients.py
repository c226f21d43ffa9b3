"""The way of the workloads to the cluster (implements `access.ClusterAccess`)."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Self

import waltz_client.client as client_module
from tests.sim.checkers.history import History
from tests.sim.cluster import repeating
from tests.sim.cluster.server_role import CLUSTER_ROOT
from tests.sim.cluster.shape import SERVER_PORT, Shape
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import current
from tests.sim.kernel.zookeeper import SimZooKeeper
from waltz_client import WaltzClient, WaltzClientCallbacks
from waltz_client.settings import ClientSettings

NEWEST_VERSIONS = client_module.PROTOCOL_VERSIONS
repeating.install()


class SimClient(WaltzClient):
    """The shipped client with a ZooKeeper session of its own, which it closes, unless it is given servers,
    and a choice of protocol versions."""

    def __init__(
        self,
        settings: ClientSettings,
        callbacks: WaltzClientCallbacks | None,
        zookeeper: SimZooKeeper,
        session_timeout_seconds: float,
        rng: random.Random,
        versions: tuple[int, ...],
        producer: str | None = None,
    ) -> None:
        super().__init__(settings, callbacks, random=rng, wall_clock=_wall_clock, producer=producer)
        self._zookeeper = zookeeper
        self._session_timeout_seconds = session_timeout_seconds
        self._versions = versions

    async def __aenter__(self) -> Self:
        session = None
        if not self._settings.servers:
            session = self._store = await self._zookeeper.connect(self._session_timeout_seconds)
        try:
            # read before the first await of what is entered, so no other client sees it
            client_module.PROTOCOL_VERSIONS = self._versions
            entering = super().__aenter__()
            return await entering
        except BaseException:
            if session is not None:
                await session.close()
            raise
        finally:
            client_module.PROTOCOL_VERSIONS = NEWEST_VERSIONS

    async def close(self, *, drain_seconds: float = 0.0) -> bool:
        """Also the session."""
        ended = await super().close(drain_seconds=drain_seconds)
        if self._store is not None:
            await self._store.close()
        return ended


def _wall_clock() -> float:
    process = current()
    return 0.0 if process is None else process.wall_ms() / 1000


class Access:
    """See the module."""

    def __init__(self, loop: SimLoop, shape: Shape, zookeeper: SimZooKeeper, history: History) -> None:
        self.history = history
        self.stopping = asyncio.Event()
        self._loop = loop
        self._shape = shape
        self._zookeeper = zookeeper
        self._counts = history.counts
        self._numbers = itertools.count(1)

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self._shape.partitions

    def new_client(
        self,
        name: str,
        callbacks: WaltzClientCallbacks | None = None,
        *,
        least_version: int = 0,
        **setting_overrides: object,
    ) -> WaltzClient:
        """See `access.ClusterAccess`."""
        number = next(self._numbers)
        rng = self._loop.rng(f"client {name}/{number}")
        versions = self._versions(self._loop.rng(f"versions {name}/{number}"), least_version)
        producer = setting_overrides.pop("producer", None)
        if producer is not None:
            versions = NEWEST_VERSIONS  # an older release knows no producers
        by_servers = versions == NEWEST_VERSIONS
        settings = ClientSettings.from_mapping(
            {
                **self._way_to_the_cluster(self._loop.rng(f"servers {name}/{number}"), by_servers),
                "client.ssl.enabled": False,
                **dict(self._shape.client_keys),
            }
        ).model_copy(update={"feed_compression": self._compression(name, number), **setting_overrides})
        self._counts[f"clients of version {versions[-1]}"] += 1
        self._counts["clients that were given servers"] += bool(settings.servers)
        self._counts["producers that were given servers"] += bool(settings.servers) and producer is not None
        return SimClient(
            settings,
            callbacks,
            self._zookeeper,
            self._shape.session_timeout_seconds,
            rng,
            versions,
            None if producer is None else str(producer),
        )

    def _compression(self, name: str, number: int) -> str:
        """Half of them ask for compressed blocks, which older servers and some of ours do not send."""
        return "zstd" if self._loop.rng(f"compression {name}/{number}").random() < 0.5 else "none"

    def _way_to_the_cluster(self, rng: random.Random, by_servers: bool) -> dict[str, object]:
        """ZooKeeper, or some of the servers, where they can be enough."""
        if by_servers and rng.random() < self._shape.directory_clients:
            names = self._shape.server_names()
            given = rng.sample(names, rng.randint(1, len(names)))
            if not any(self._shape.always_ours(name) for name in given):
                given.append(names[0])
            self._counts["clients that were given servers of both releases"] += self._shape.old_servers > 0
            return {"servers": [f"{name}:{SERVER_PORT}" for name in given]}
        return {
            "zookeeper.connectString": "zookeeper:2181",
            "zookeeper.sessionTimeout": int(self._shape.session_timeout_seconds * 1000),
            "cluster.root": CLUSTER_ROOT,
        }

    def _versions(self, rng: random.Random, least: int) -> tuple[int, ...]:
        """All versions of this client: usually up to the newest one, else as an older release spoke them."""
        if rng.random() >= self._shape.old_clients:
            return NEWEST_VERSIONS
        return NEWEST_VERSIONS[: rng.randint(least, len(NEWEST_VERSIONS) - 1) + 1]

    def rng(self, name: str) -> random.Random:
        """See `access.ClusterAccess`."""
        return self._loop.rng(name)

    def time(self) -> float:
        """Virtual seconds."""
        return self._loop.now
