"""A connection of Spark's processes by a list of servers: what it knows of the cluster, and no ZooKeeper."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from uuid import UUID

from waltz_protocol.directory import Directory
from waltz_protocol.types import Endpoint, Generation, PartitionId
from waltz_testkit.loopback_server import LoopbackServer

KEY = UUID(int=5)
PROGRAM = """
import atexit, sys, threading

# before what the import registers, so it runs after that
atexit.register(lambda: print([one.name for one in threading.enumerate() if one.name == "waltz-spark"]))

from waltz_spark.connection import lease
from waltz_spark.options import BATCH, ReadOptions

options = ReadOptions.load({"servers": sys.argv[1], "client.ssl.enabled": "false"}, BATCH)
with lease(options.client) as connection:
    print(connection.identity.key, connection.identity.name, connection.identity.num_partitions)
    print(connection.call(lambda client: client.high_water_mark(0)))
print([name for name in sys.modules if name.split(".")[0] == "kazoo" or "zk_client" in name])
"""


async def test_an_executor_reads_by_servers_alone() -> None:
    async with LoopbackServer({0: 1}) as server:
        here = Endpoint("127.0.0.1", server.listener.port)
        owned = {PartitionId(0): Generation(1)}
        server.directory.update(Directory(1, "loopback", KEY, 8, {here: owned}))
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(here)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{KEY} loopback 8", "-1", "[]", "[]"], "a thread is left at the end"
