"""A server that is given its partitions."""

import pytest

from cluster_tests.manager_helpers import ROOT, Partitions, Server, memory_cluster, start_server, until
from waltz_cluster.membership import Snapshot


async def test_a_server_that_does_not_take_its_partitions_is_given_them_again() -> None:
    server = Server((await memory_cluster()).session(10.0), ROOT, 7001)
    given: list[Partitions] = []

    def take(partitions: Partitions) -> None:
        given.append(partitions)
        if len(given) < 3:
            raise MemoryError("no memory")

    async with server.manager:
        await server.manager.register_server(server.endpoint, take)
        await until(lambda: len(given) == 3)
        assert given[0] == given[1] == given[2] != {}
    assert given[3:] == [{}]


async def test_an_error_that_nobody_foresaw_does_not_end_the_work_of_the_coordinator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its task ended with it, and its session lived: the partitions of the next server that left had no
    owner, for as long as the coordinator ran."""
    zookeeper = await memory_cluster()
    coordinator, other = await start_server(zookeeper, 7001), await start_server(zookeeper, 7002)
    await until(lambda: len(coordinator.partitions) == len(other.partitions) == 2)
    reader, failures = coordinator.manager._reader, list[object]()
    real = reader.snapshot

    async def no_memory() -> Snapshot:
        monkeypatch.setattr(reader, "snapshot", real)
        failures.append(None)
        raise MemoryError

    monkeypatch.setattr(reader, "snapshot", no_memory)
    await other.stop()
    await until(lambda: len(coordinator.partitions) == 4)
    assert failures
    (said,) = [one for one in caplog.records if one.levelname == "WARNING" and one.exc_info]
    assert said.getMessage().endswith("is evaluated again after: MemoryError()")
    await coordinator.stop()
