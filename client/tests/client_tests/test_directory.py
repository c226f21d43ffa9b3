"""A client that is given servers in place of ZooKeeper: what it follows, whom it asks, what it says when
nobody answers."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from waltz_client import ClientSettings, WaltzClient
from waltz_client._internal.directory import discovery as discovery_module
from waltz_client._internal.directory.discovery import DirectoryDiscovery
from waltz_client._internal.link import LinkSettings
from waltz_client.errors import ConnectError
from waltz_cluster.errors import ConnectionLostError
from waltz_protocol.directory import Directory
from waltz_protocol.types import Endpoint, Generation, PartitionId
from waltz_testkit.client_peers import RawPeer
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.ports import free_port

KEY, OTHER_KEY = UUID(int=1), UUID(int=2)
PARTITIONS = 8


def settings(*servers: Endpoint, **more: object) -> ClientSettings:
    keys = {key.replace("_", "."): value for key, value in more.items()}
    return ClientSettings.load(
        {
            "servers": [str(server) for server in servers],
            "client.ssl.enabled": False,
            "client.connectTimeout": 1000,
            **keys,
        }
    )


def endpoint(server: LoopbackServer) -> Endpoint:
    return Endpoint("127.0.0.1", server.listener.port)


def directory(version: int, *servers: tuple[LoopbackServer, dict[int, int]], key: UUID = KEY) -> Directory:
    return Directory(
        version,
        "loopback",
        key,
        PARTITIONS,
        {
            endpoint(server): {PartitionId(p): Generation(g) for p, g in owned.items()}
            for server, owned in servers
        },
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def watched(servers: Sequence[LoopbackServer]) -> list[int]:
    return [server.directory.watchers for server in servers]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_module, "LEAVE_SECONDS", 0.05)
    monkeypatch.setattr(discovery_module, "RECHECK_SECONDS", (0.05, 0.1))


@asynccontextmanager
async def two_servers() -> AsyncIterator[list[LoopbackServer]]:
    """The first owns partition 0, the second partition 1."""
    async with LoopbackServer({0: 1}) as one, LoopbackServer({1: 1}) as two:
        for server in (one, two):
            server.directory.update(directory(1, (one, {0: 1}), (two, {1: 1})))
        yield [one, two]


async def close_and_change(discovery: DirectoryDiscovery) -> None:
    """The connection is cut, and another one is there."""
    await until(lambda: discovery._session is not None)
    before = discovery._session
    assert before is not None
    before.close("planted")
    await until(lambda: discovery._session not in (None, before))


async def test_appends_and_feeds_over_servers_that_one_of_them_named() -> None:
    async with (
        two_servers() as servers,
        WaltzClient.connect(settings(endpoint(servers[0]), client_clusterKey=str(KEY))) as client,
    ):
        assert (client.cluster_name, client.num_partitions, client.cluster_key) == (
            "loopback",
            PARTITIONS,
            KEY,
        )
        assert client.client_id == servers[0].client_ids == 1
        for partition in (0, 1):
            done = await client.append(partition=partition, data=b"x")
            seen = [t async for t in client.feed(partition, after=-1, until=done.transaction_id)]
            assert [t.data for t in seen] == [b"x"]
        assert set(client.servers.endpoints()) == {endpoint(server) for server in servers}
        assert sum(watched(servers)) == 1


async def test_a_partition_that_moves_is_found_by_a_push() -> None:
    async with two_servers() as servers, WaltzClient.connect(settings(endpoint(servers[0]))) as client:
        one, two = servers
        await client.append(partition=0, data=b"x")
        two.backend.nodes = one.backend.nodes
        one.registry.adopt({})
        two.registry.adopt({0: 2, 1: 1})
        one.directory.update(directory(2, (one, {}), (two, {0: 2, 1: 1})))
        await client.append(partition=0, data=b"y")
        assert len(one.backend.nodes.logs[0]) == 2


@pytest.mark.parametrize("generation", [1, 2, 9])
async def test_a_directory_that_names_the_wrong_server_is_harmless(generation: int) -> None:
    """Whatever it says: the server that is named takes nothing, and the append is there once in the end."""
    async with two_servers() as servers, WaltzClient.connect(settings(endpoint(servers[0]))) as client:
        one, two = servers
        await client.append(partition=0, data=b"x")
        for server in servers:
            server.directory.update(directory(2, (one, {}), (two, {0: generation, 1: 1})))
        await until(lambda: client._open.partitions.endpoints[0] == endpoint(two))
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(client.append(partition=0, data=b"y"))
            await asyncio.sleep(0.3)
            assert not appending.done()
            assert 0 not in two.backend.nodes.logs
            one.registry.adopt({0: 10})
            for server in servers:
                server.directory.update(directory(3, (one, {0: 10}), (two, {1: 1})))
        assert appending.result().transaction_id == 1
        assert len(one.backend.nodes.logs[0]) == 2


async def test_another_server_is_asked_when_one_is_gone_and_the_seeds_stay() -> None:
    async with AsyncExitStack() as stack:
        first, second = AsyncExitStack(), AsyncExitStack()
        await stack.enter_async_context(first)
        await stack.enter_async_context(second)
        one = await first.enter_async_context(LoopbackServer({0: 1}))
        seed = endpoint(one)
        two = await second.enter_async_context(LoopbackServer({}))
        one.directory.update(directory(1, (one, {0: 1}), (two, {})))
        two.directory.update(directory(1, (one, {0: 1}), (two, {})))
        client = await stack.enter_async_context(WaltzClient.connect(settings(seed)))
        await until(lambda: watched([one]) == [1])
        await first.aclose()  # the only server that was given
        await until(lambda: watched([two]) == [1])
        two.registry.adopt({0: 2})
        two.directory.update(directory(2, (two, {0: 2})))
        await client.append(partition=0, data=b"x")
        discovery = client._open._discovery
        assert isinstance(discovery, DirectoryDiscovery)
        assert discovery._sources.known() == [seed, endpoint(two)]


async def test_safety_e2_an_older_directory_is_not_followed_after_a_change_of_servers() -> None:
    async with two_servers() as servers:
        one, two = servers
        one.directory.update(directory(5, (one, {0: 7}), (two, {1: 1})))
        one.registry.adopt({0: 7})
        await asyncio.sleep(0.1)
        links = replace(_links(settings(endpoint(one))), max_backoff_seconds=0.1)
        async with DirectoryDiscovery([endpoint(one)], links, random.Random(1)) as found:
            seen: list[dict[Endpoint, dict[PartitionId, Generation]]] = []
            found.add_endpoints_listener(seen.append)
            assert found._sources.followed is not None
            assert found._sources.followed.version == 5
            for _ in range(20):  # to and fro: the second one is never followed
                await close_and_change(found)
                await asyncio.sleep(0.02)
                assert found._sources.followed.version == 5
            assert len(seen) == 1
            two.directory.update(directory(6, (two, {0: 8, 1: 1})))
            one.directory.update(directory(6, (two, {0: 8, 1: 1})))
            await until(lambda: len(seen) == 2)
            assert seen[1] == {endpoint(two): {0: 8, 1: 1}}


async def test_a_server_out_of_contact_is_left_for_another_one() -> None:
    async with two_servers() as servers, WaltzClient.connect(settings(endpoint(servers[0]))) as client:
        one, two = servers
        await until(lambda: watched(servers) == [1, 0])
        known = directory(1, (one, {0: 1}), (two, {1: 1}))
        one.directory.update(replace(known, in_contact=False))
        await until(lambda: watched(servers) == [0, 1])
        await client.append(partition=0, data=b"x")  # it serves what it has
        two.directory.update(replace(known, in_contact=False))
        await asyncio.sleep(0.3)  # nobody is in contact: what is known stays in use
        await client.append(partition=0, data=b"x")
        one.directory.update(known)
        await until(lambda: watched(servers) == [1, 0])


async def test_a_server_that_gives_no_sign_of_life_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server keeps its connections, and pushes nothing."""
    monkeypatch.setattr(discovery_module, "PING_SECONDS", 0.05)
    async with two_servers() as servers, WaltzClient.connect(settings(endpoint(servers[0]))) as client:
        one, two = servers
        await asyncio.sleep(0.5)
        assert watched(servers) == [1, 0]  # it answers
        one.admin.handle = lambda client, body: None  # type: ignore[method-assign]
        await until(lambda: watched(servers) == [0, 1])
        two.directory.update(directory(2, (two, {0: 2, 1: 1})))
        await until(lambda: client._open.partitions.endpoints[0] == endpoint(two))


async def test_a_server_of_another_cluster_is_not_followed() -> None:
    async with two_servers() as servers, LoopbackServer({0: 9}) as stranger:
        stranger.directory.update(directory(99, (stranger, {0: 9}), key=OTHER_KEY))
        both = settings(endpoint(servers[0]), endpoint(stranger), client_clusterKey=str(KEY))
        for number in range(4):
            async with WaltzClient(both, random=random.Random(number)) as client:
                await client.append(partition=0, data=b"x")
                await asyncio.sleep(0.1)
                assert endpoint(stranger) not in client.servers.endpoints()
        only = settings(endpoint(stranger), client_clusterKey=str(KEY))
        with pytest.raises(ConnectError, match=rf"{stranger.listener.port}: it is of another cluster, 'loop"):
            async with WaltzClient(only):
                pass


async def test_a_server_whose_address_went_to_another_cluster_is_left() -> None:
    async with two_servers() as servers, LoopbackServer({0: 9}) as stranger:
        one, two = servers
        known = directory(1, (one, {0: 1}), (two, {1: 1}))
        one.directory.update(replace(known, version=2, servers={**known.servers, endpoint(stranger): {}}))
        async with WaltzClient.connect(settings(endpoint(one))) as client:
            stranger.directory.update(directory(99, (stranger, {0: 9}), key=OTHER_KEY))
            await until(lambda: watched([one]) == [1])
            discovery = client._open._discovery
            assert isinstance(discovery, DirectoryDiscovery)
            for _ in range(5):
                await close_and_change(discovery)
                await asyncio.sleep(0.1)
                assert discovery._sources.cluster_key == KEY
            await client.append(partition=0, data=b"x")


@asynccontextmanager
async def old_server() -> AsyncIterator[int]:
    """Says Hello in the versions of 0.13.2."""
    from waltz_protocol.aio.channel import Channel, ChannelSettings
    from waltz_protocol.aio.listener import Listener
    from waltz_protocol.codec import CLIENT

    class Deaf:
        def channel_ready(self, channel: Channel) -> None: ...
        def frame_received(self, channel: Channel, body: memoryview) -> None: ...
        def frames_ended(self, channel: Channel) -> None: ...
        def writable_changed(self, channel: Channel, writable: bool) -> None: ...
        def channel_closed(self, channel: Channel, reason: str) -> None: ...

    async with Listener() as listener:
        await listener.start(
            "127.0.0.1", 0, ChannelSettings(CLIENT.magic, (0, 1, 2, 3, 4), "old"), Deaf, None
        )
        yield listener.port


async def test_who_was_tried_and_why_each_failed() -> None:
    async with old_server() as old:
        nobody = free_port()
        several = settings(Endpoint("127.0.0.1", old), Endpoint("127.0.0.1", nobody))
        with pytest.raises(ConnectError) as caught:
            async with WaltzClient(several):
                pass
        text = str(caught.value)
        assert "\n" not in text
        assert f"127.0.0.1:{old}: it speaks version 4 of the protocol, directories need version 5" in text
        assert "a server of release 0.13.2 has none, give zookeeper.connectString there" in text
        assert f"127.0.0.1:{nobody}: connection refused" in text
        started = asyncio.get_running_loop().time()
        with pytest.raises(ConnectError, match="version 5"):  # no time is lost where there is no hope
            async with WaltzClient(settings(Endpoint("127.0.0.1", old))):
                pass
        assert asyncio.get_running_loop().time() - started < 0.9


async def test_an_old_server_among_others_does_no_harm() -> None:
    async with old_server() as old, two_servers() as servers:
        mixed = settings(Endpoint("127.0.0.1", old), endpoint(servers[0]))
        for number in range(4):
            async with WaltzClient(mixed, random=random.Random(number)) as client:
                await client.append(partition=1, data=b"x")


async def test_a_server_without_a_directory_is_given_up() -> None:
    async with LoopbackServer({}) as silent:
        with pytest.raises(ConnectError, match="it sent no directory within 1 s"):
            async with WaltzClient(settings(endpoint(silent))):
                pass


async def test_an_id_comes_from_another_server_when_one_has_none() -> None:
    async def none(count: int, seconds: float) -> range:
        raise ConnectionLostError("ZooKeeper is away")

    async with two_servers() as servers:
        servers[0].directory._take_ids = none
        async with WaltzClient.connect(settings(endpoint(servers[0]))) as client:
            assert client.client_id == servers[1].client_ids == 1


async def test_no_id_at_all_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(count: int, seconds: float) -> range:
        raise ConnectionLostError("ZooKeeper is away")

    monkeypatch.setattr(discovery_module, "ASK_SECONDS", 0.3)
    async with two_servers() as servers:
        for server in servers:
            server.directory._take_ids = none
        with pytest.raises(
            ConnectError, match=r"no server gave this client a client id: .*ZooKeeper is away"
        ):
            async with WaltzClient.connect(settings(endpoint(servers[0]))):
                pass


async def test_hostile_directories_end_the_connection_and_nothing_else() -> None:
    async with two_servers() as servers, WaltzClient.connect(settings(endpoint(servers[0]))) as client:
        one, two = servers
        known = directory(1, (one, {0: 1}), (two, {1: 1}))
        wrong = {
            endpoint(one): {PartitionId(0): Generation(3)},
            endpoint(two): {PartitionId(0): Generation(4)},
        }
        one.directory.update(replace(known, version=7, servers=wrong))
        await until(lambda: watched(servers) == [0, 1])
        await client.append(partition=0, data=b"x")
        discovery = client._open._discovery
        assert isinstance(discovery, DirectoryDiscovery)
        assert discovery._sources.followed == known


async def test_no_kazoo_and_no_thread_in_a_process_that_is_given_servers() -> None:
    program = """
        import asyncio, sys, threading
        from waltz_client import WaltzClient

        async def main():
            settings = {"servers": sys.argv[1], "client.ssl.enabled": False}
            async with WaltzClient.connect(settings) as client:
                done = await client.append(partition=0, data=b"x")
                async for transaction in client.feed(0, after=-1, until=done.transaction_id):
                    pass
                print(done.transaction_id, [t.name for t in threading.enumerate()])

        asyncio.run(main())
        print([name for name in sys.modules if name.split(".")[0] == "kazoo" or "zk_client" in name])
    """
    async with two_servers() as servers:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", textwrap.dedent(program), str(endpoint(servers[0]))],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert done.stdout.splitlines() == ["0 ['MainThread']", "[]"]


def _links(its: ClientSettings) -> LinkSettings:
    from waltz_protocol.aio.channel import ChannelSettings
    from waltz_protocol.codec import CLIENT

    channel = ChannelSettings(CLIENT.magic, CLIENT.versions, "Waltz Client")
    return LinkSettings(channel, None, its.connect_timeout_ms / 1000)


async def test_raw_peers_can_still_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that asks for nothing costs the desk nothing."""
    async with two_servers() as servers:
        peer = await RawPeer.open(servers[0].listener.port, version=5)
        assert watched(servers) == [0, 0]
        await peer.close()
