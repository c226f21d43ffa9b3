"""Admin requests in hex, and what the reference gets wrong about them."""

import asyncio
from collections.abc import Sequence

import pytest

from waltz_testkit.loopback_server import LoopbackServer

A = "00000001000000000000000000000000"
A3 = "00000001000000000000000300000000"


class _Preferences:
    def __init__(self) -> None:
        self.preferred: set[int] = set()
        self.error: Exception | None = None

    async def add_preferred(self, partitions: Sequence[int]) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.preferred |= set(partitions)

    async def remove_preferred(self, partitions: Sequence[int]) -> None:
        await asyncio.sleep(0)
        self.preferred -= set(partitions)


async def test_catalogue_hex() -> None:
    async with LoopbackServer({0: 1, 3: 1}) as server:
        server.admin.preferences = preferences = _Preferences()
        await asyncio.sleep(0)
        peer = await server.peer()
        peer.write(bytes.fromhex(f"4C 0004 00000011 0D {A}"))
        assert await peer.read_frame_bytes() == bytes.fromhex(
            f"4C 0004 00000023 0E {A} 00000001 00000009 7374313A3535323830 01"
        )
        peer.write(bytes.fromhex(f"4C 0004 00000011 0F {A}"))
        assert await peer.read_frame_bytes() == bytes.fromhex(
            f"4C 0004 0000001D 10 {A} 00000002 00000000 00000003"
        )
        peer.write(bytes.fromhex(f"4C 0004 0000001D 11 {A3} 00000002 00000003 00000005"))
        assert await peer.read_frame_bytes() == bytes.fromhex(f"4C 0004 00000012 12 {A3} 01")
        assert preferences.preferred == {3, 5}
        peer.write(bytes.fromhex(f"4C 0004 00000019 13 {A3} 00000001 00000003"))
        assert await peer.read_frame_bytes() == bytes.fromhex(f"4C 0004 00000012 14 {A3} 01")
        assert preferences.preferred == {5}
        server.backend.stores[3].lose_session("no quorum")
        peer.write(bytes.fromhex(f"4C 0004 00000011 15 {A}"))
        assert await peer.read_frame_bytes() == bytes.fromhex(
            f"4C 0004 0000001F 16 {A} 00000002 00000000 01 00000003 00"
        )


@pytest.mark.parametrize(
    "ids", ["00000000", "00000001 00000063", "00000001 FFFFFFFF", "00000002 00000001 00000008"]
)
async def test_client_server_13_18_senseless_lists_are_answered_false(ids: str) -> None:
    async with LoopbackServer({}) as server:
        server.admin.preferences = preferences = _Preferences()
        peer = await server.peer()
        for kind, answer in (("11", "12"), ("13", "14")):
            body = bytes.fromhex(f"{kind} {A3} {ids}")
            peer.write(bytes.fromhex("4C0004") + len(body).to_bytes(4, "big") + body)
            assert await peer.read_frame_bytes() == bytes.fromhex(f"4C 0004 00000012 {answer} {A3} 00")
        assert preferences.preferred == set()


async def test_failure_to_change_preferences_closes_the_connection_as_the_tools_expect() -> None:
    async with LoopbackServer({}) as server:
        server.admin.preferences = preferences = _Preferences()
        preferences.error = ConnectionError("ZooKeeper is away")
        peer = await server.peer()
        peer.write(bytes.fromhex(f"4C 0004 00000019 11 {A3} 00000001 00000003"))
        assert await peer.closed_by_server()


async def test_concurrent_checks_share_one_round() -> None:
    async with LoopbackServer({}) as server:
        rounds = 0
        hold = asyncio.Event()

        async def check() -> dict[str, bool]:
            nonlocal rounds
            rounds += 1
            await hold.wait()
            return {"st1:1": False}

        server.check = check
        peers = [await server.peer() for _ in range(4)]
        for peer in peers:
            peer.write(bytes.fromhex(f"4C 0004 00000011 0D {A}"))
            await asyncio.sleep(0.01)
        hold.set()
        frames = [await peer.read_frame_bytes() for peer in peers]
        assert set(frames) == {bytes.fromhex(f"4C 0004 0000001F 0E {A} 00000001 00000005 7374313A31 00")}
        assert rounds == 2


@pytest.mark.parametrize(("version", "kind"), [(0, "0D"), (1, "0F"), (3, "15")])
async def test_requests_newer_than_the_version_close_the_connection(version: int, kind: str) -> None:
    async with LoopbackServer({}) as server:
        peer = await server.peer(version=version)
        peer.write(bytes.fromhex(f"4C {version:04X} 00000011 {kind} {A}"))
        assert await peer.closed_by_server()
