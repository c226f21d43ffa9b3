"""`python -m waltz_server CONFIG.yaml` (or `waltz-server CONFIG.yaml`): one server, until SIGTERM.

Exit codes: `waltz_runtime.exit_code`.
"""

from __future__ import annotations

import waltz_runtime.early_end  # noqa: F401 - before what takes a while to import

# isort: split
import asyncio
import random
import sys
from collections.abc import Sequence

from waltz_cluster import zk_client
from waltz_cluster.config.files import load_file
from waltz_runtime.command import run_role
from waltz_runtime.metrics import MetricsRegistry
from waltz_runtime.process import CutShortBy
from waltz_server.metric_meanings import BUILD, MEANINGS
from waltz_server.quorum_backend import quorum_backend
from waltz_server.server import WaltzServer
from waltz_server.settings import ServerSettings


async def serve(settings: ServerSettings, stop: asyncio.Event) -> None:
    """Connect to ZooKeeper, serve until `stop`."""
    zookeeper = None
    rng = random.Random()
    metrics = MetricsRegistry(asyncio.get_running_loop().time, MEANINGS, BUILD)
    make_backend = quorum_backend(settings, rng, metrics)
    async with CutShortBy(stop):
        zookeeper = await zk_client.connect(settings)
    if zookeeper is None:
        return
    try:
        server = WaltzServer(
            settings, zookeeper=zookeeper, make_backend=make_backend, rng=rng, metrics=metrics
        )
        await server.serve(stop)
    finally:
        await zookeeper.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_role("server", arguments, load_file, ServerSettings.from_mapping, serve)


if __name__ == "__main__":
    sys.exit(main())
