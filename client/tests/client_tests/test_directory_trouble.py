"""What a client does when servers of its list are frozen, wrong, old, or refuse it ids."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace
from typing import cast

import pytest

from client_tests.test_directory import (
    KEY,
    OTHER_KEY,
    PARTITIONS,
    endpoint,
    old_server,
    settings,
    two_servers,
    until,
)
from client_tests.test_directory_sources import A, B, of
from waltz_client import WaltzClient
from waltz_client._internal.directory import discovery as discovery_module
from waltz_client._internal.directory.discovery import DirectoryDiscovery
from waltz_client._internal.directory.sources import OLDER_ROUNDS, Judgement, Sources
from waltz_client.errors import ConnectError
from waltz_cluster.errors import ConfigError as ClusterConfigError
from waltz_cluster.errors import IdsExhaustedError
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.codec import CLIENT
from waltz_protocol.directory import Directory, DirectoryParts, encode_directory
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.messages.directory import DirectoryPart
from waltz_protocol.types import Endpoint
from waltz_server.settings import ServerSettings
from waltz_testkit.loopback_server import LoopbackServer


class First(random.Random):
    """Servers in the order that they are given in."""

    def random(self) -> float:
        return 0.0


async def test_two_frozen_seeds_do_not_keep_a_client_from_the_third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery_module, "ATTEMPT_SECONDS", 0.3)  # as 3 of 10 seconds
    connections: list[asyncio.StreamWriter] = []

    def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    frozen = [await asyncio.start_server(silent, "127.0.0.1", 0) for _ in range(2)]
    try:
        seeds = [Endpoint("127.0.0.1", one.sockets[0].getsockname()[1]) for one in frozen]
        async with (
            two_servers() as servers,
            WaltzClient(settings(*seeds, endpoint(servers[0])), random=First()) as client,
        ):
            await client.append(partition=0, data=b"x")
    finally:
        for one in frozen:
            one.close()
        for writer in connections:
            writer.close()


async def test_no_host_name_ends_the_task_that_watches() -> None:
    async with two_servers() as servers, WaltzClient.connect(settings(endpoint(servers[0]))) as client:
        discovery = client._open._discovery
        assert isinstance(discovery, DirectoryDiscovery)
        one = servers[0]
        known = one.directory._directory
        assert known is not None
        one.directory.update(replace(known, version=2, servers={Endpoint("a\0b", 1): {}}))
        await asyncio.sleep(0.3)
        for _ in range(5):
            if discovery._session is not None:
                discovery._session.close("planted")
            await asyncio.sleep(0.3)
        task = discovery._task
        assert task is not None
        assert not task.done()


def test_an_outage_of_zookeeper_is_not_three_rounds_without_a_new_directory() -> None:
    sources = Sources([A, B], random.Random(1))
    assert sources.judge(sources.next(), of(9)) is Judgement.FOLLOW
    while sources.rounds < OLDER_ROUNDS:
        assert sources.judge(sources.next(), of(9, contact=False)) is Judgement.FOLLOW_AND_LEAVE
    assert sources.judge(A, of(9, contact=False)) is Judgement.FOLLOW_AND_LEAVE
    assert sources.judge(B, of(8)) is Judgement.LEAVE


async def test_a_counter_at_its_end_is_no_reason_to_connect_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery_module, "ASK_SECONDS", 3.0)
    asked = 0

    async def none(count: int, seconds: float) -> range:
        nonlocal asked
        asked += 1
        raise IdsExhaustedError("all ids have been given out")

    async with two_servers() as servers:
        for server in servers:
            server.directory._take_ids = none
        with pytest.raises(ConnectError, match="given out"):
            async with WaltzClient.connect(settings(endpoint(servers[0]))):
                pass
    assert asked <= 12, f"{asked} connections in 5 s"


@pytest.mark.parametrize("wrong", [Endpoint("", 1), Endpoint("b", 0), Endpoint("b", 70000)])
def test_one_wrong_descriptor_does_not_make_the_directory_useless(wrong: Endpoint) -> None:
    good = of(1).servers
    frames = encode_directory(replace(of(1), servers={**good, wrong: {}}))
    parts = DirectoryParts()
    found: Directory | None = None
    for frame in frames:
        part = CLIENT.decode(memoryview(frame)[FRAME_HEADER_SIZE:], 5)
        found = parts.add(cast("DirectoryPart", part))
    assert found is not None
    assert found.servers == good


async def test_a_server_that_freezes_while_all_are_out_of_contact_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery_module, "RECHECK_SECONDS", (60.0, 60.0))
    monkeypatch.setattr(discovery_module, "PING_SECONDS", 0.2)
    async with two_servers() as servers, WaltzClient.connect(settings(*map(endpoint, servers))) as client:
        discovery = client._open._discovery
        assert isinstance(discovery, DirectoryDiscovery)
        known = servers[0].directory._directory
        assert known is not None
        for server in servers:
            server.directory.update(replace(known, in_contact=False))
        await until(lambda: discovery._sources.round_over and discovery._session is not None)
        await asyncio.sleep(0.5)
        here = next(one for one in servers if one.directory.watchers)
        other = next(one for one in servers if one is not here)
        monkeypatch.setattr(here.admin, "handle", lambda *_: None)  # frozen: no answer to a ping
        other.directory.update(replace(known, version=5))
        async with asyncio.timeout(3):
            while not other.directory.watchers:
                await asyncio.sleep(0.02)


async def test_an_advertised_host_that_is_empty_is_refused_when_the_server_starts() -> None:
    flat = {
        "cluster.root": "/w",
        "zookeeper.connectString": "z:1",
        "zookeeper.sessionTimeout": 1000,
        "server.port": 55180,
        "server.advertised.host": "",
    }
    with pytest.raises(ClusterConfigError):
        ServerSettings.from_mapping(flat)


async def test_one_address_in_front_of_old_and_new_servers_is_not_given_up_at_once() -> None:
    """What the operator publishes is one Service; while servers are upgraded it leads to old ones and new
    ones."""
    async with old_server() as old, two_servers() as servers:
        behind = itertools.chain((old,), itertools.repeat(endpoint(servers[0]).port))
        pumps: list[asyncio.Task[None]] = []

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while data := await reader.read(1 << 16):
                    writer.write(data)
            except ConnectionError:
                pass
            finally:
                writer.close()

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", next(behind))
            pumps.append(spawn(pump(reader, to_writer), "there"))
            pumps.append(spawn(pump(to_reader, writer), "back"))

        service = await asyncio.start_server(forward, "127.0.0.1", 0)
        try:
            seed = Endpoint("127.0.0.1", service.sockets[0].getsockname()[1])
            async with WaltzClient(settings(seed)) as client:
                await client.append(partition=0, data=b"x")
        finally:
            service.close()
            for one in pumps:
                one.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            await asyncio.sleep(0.05)


async def test_no_id_comes_from_a_server_of_another_cluster() -> None:
    """Its counter has nothing to do with the ids of this cluster: another client could have the same one."""

    async def none(count: int, seconds: float) -> range:
        raise IdsExhaustedError("all ids have been given out")

    async with two_servers() as servers, LoopbackServer({0: 9}) as stranger:
        servers[0].directory._take_ids = none
        stranger.directory.update(replace(of(99, key=OTHER_KEY), num_partitions=PARTITIONS))
        both = settings(endpoint(servers[0]), endpoint(stranger), client_clusterKey=str(KEY))
        for number in range(4):
            async with WaltzClient(both, random=random.Random(number)) as client:
                assert client.client_id == servers[1].client_ids
        assert not stranger.client_ids


def test_a_client_goes_back_though_who_showed_a_newer_directory_is_gone() -> None:
    sources = Sources([A], random.Random(1))
    sources.judge(sources.next(), of(9))
    sources.judge(A, of(8))  # and this server shows an older one from now on
    for _ in range(3 * (OLDER_ROUNDS + 3)):
        if sources.judge(sources.next(), of(4)).follows:
            break
    assert sources.followed == of(4)
