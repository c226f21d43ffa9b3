"""A log inside the test: applications' tests run against the real client without servers, ZooKeeper or
sockets.

    async def test_a_transfer() -> None:
        log = InProcessLog(num_partitions=2)
        async with log.client() as client:
            await client.append(partition=0, data=b"...", write_locks=[LockId("account", 7)])

Only the server's end is a substitute: the client, its frames, its retries, its feeds and the lock table are
the shipped ones. See `InProcessLog` (clients, connections) and `LogPartition` (what is in the log, failures
on demand).

`log` is the whole, `partition` the server's side of one partition, `feeds` its feeds, `connection`
the messages of one connection, `values` what these hand to one another, `transport` the wire, `home` calls
from the threads of tests.
"""

from waltz_client.testing.log import InProcessLog
from waltz_client.testing.partition import LogPartition
from waltz_client.testing.values import LoggedTransaction

__all__ = ["InProcessLog", "LogPartition", "LoggedTransaction"]
