"""A server that is given its partitions."""

from cluster_tests.manager_helpers import ROOT, Partitions, Server, memory_cluster, until


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
