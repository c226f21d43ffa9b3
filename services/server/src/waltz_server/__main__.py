"""`python -m waltz_server CONFIG.yaml` (or `waltz-server CONFIG.yaml`): one server, until SIGTERM.

Exit codes: 0 after an orderly leave, 1 and one line for a mistake of the operator (configuration, keys, port,
ZooKeeper), 70 for anything else.
"""

from __future__ import annotations

import asyncio
import random
import sys

from waltz_cluster import zk_client
from waltz_runtime.logs import configure_logging
from waltz_runtime.process import run_service
from waltz_server.quorum_backend import quorum_backend
from waltz_server.server import WaltzServer
from waltz_server.settings import ServerSettings

USAGE = "usage: waltz-server CONFIG.yaml"
EXIT_USAGE = 1


async def serve(config_path: str, stop: asyncio.Event) -> None:
    """Read the configuration, connect to ZooKeeper, serve until `stop`."""
    settings = ServerSettings.from_file(config_path)
    configure_logging(settings.log_level, settings.log_json)
    rng = random.Random()
    make_backend = quorum_backend(settings, rng)
    zookeeper = await zk_client.connect(settings)
    try:
        await WaltzServer(settings, zookeeper=zookeeper, make_backend=make_backend, rng=rng).serve(stop)
    finally:
        await zookeeper.close()


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1 or given[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if given and given[0] in ("-h", "--help") else EXIT_USAGE
    configure_logging()
    return run_service(lambda stop: serve(given[0], stop))


if __name__ == "__main__":
    sys.exit(main())
