"""What a server of version 5 says at the end of a connection, and how a client leaves a partition."""

from __future__ import annotations

import asyncio

import pytest

from waltz_protocol.frames.append_batch import APPEND_ANSWERS_TYPE, Verdict, parse_answers
from waltz_protocol.messages.client import (
    CloseCode,
    CloseNotice,
    FeedData,
    FeedRequest,
    FlushRequest,
    FlushResponse,
    MountRequest,
    MountResponse,
    MountState,
    UnmountRequest,
)
from waltz_protocol.types import ReqId
from waltz_server import connection as connection_module
from waltz_testkit.client_peers import RawPeer
from waltz_testkit.loopback_server import LoopbackServer

MOUNT = ReqId(1, 2, 3, 4)


async def _mounted(server: LoopbackServer, version: int = 5, client_id: int = 1) -> RawPeer:
    peer, req_id = await server.peer(version=version), MOUNT._replace(client_id=client_id)
    peer.send(MountRequest(req_id, -1, 0))
    assert await peer.read() == MountResponse(req_id, MountState.READY)
    return peer


@pytest.mark.parametrize(
    ("what", "sent"),
    [
        ("message type 99 is unknown", "4C 0005 00000011 63 00000001000000020000000300000004"),
        ("version 4, expected", "4C 0004 00000011 08 00000001000000020000000300000004"),
        ("an unmount request of 18 bytes", "4C 0005 00000012 26 00000001000000020000000300000004 00"),
    ],
)
async def test_who_breaks_the_protocol_hears_how_before_the_end(what: str, sent: str) -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await _mounted(server)
        peer.write(bytes.fromhex(sent))
        notice = await peer.read()
        assert isinstance(notice, CloseNotice)
        assert (notice.code, notice.req_id) == (CloseCode.PROTOCOL_ERROR, ReqId(1, -1, -1, -1))
        assert notice.text is not None
        assert what in notice.text
        assert await peer.closed_by_server()


async def test_a_server_that_leaves_says_so_in_version_5_only() -> None:
    async with LoopbackServer({3: 2}) as server:
        old, new = await _mounted(server, 4, 2), await _mounted(server)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.listener.close("the server is stopped"))
            notice = CloseNotice(ReqId(1, -1, -1, -1), CloseCode.LEAVING, "the server is stopped")
            assert await new.read() == notice
            assert await new.closed_by_server()
            assert await old.closed_by_server()


async def test_who_asks_for_too_much_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz_server.partition.feed.MAX_FEEDS_PER_CLIENT", 1)
    async with LoopbackServer({3: 2}) as server:
        peer = await _mounted(server)
        for number in (5, 6):
            peer.send(FeedRequest(ReqId(1, 2, 3, number), -1))
        notice = await peer.read()
        assert isinstance(notice, CloseNotice)
        assert notice.code == CloseCode.TOO_MUCH
        assert await peer.closed_by_server()


async def test_a_failure_inside_of_the_server_is_not_blamed_on_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("planted")

    async with LoopbackServer({3: 2}) as server:
        peer = await _mounted(server)
        monkeypatch.setattr(connection_module.ClientConnection, "_fixed_size", fails)
        peer.send(FlushRequest(MOUNT))
        notice = await peer.read()
        assert isinstance(notice, CloseNotice)
        assert notice.code == CloseCode.INTERNAL_ERROR


async def test_who_unmounts_appends_and_follows_no_longer_and_may_mount_again() -> None:
    async with LoopbackServer({3: 2}) as server:
        peer, other = await _mounted(server), await _mounted(server, 4, 2)
        peer.send(FeedRequest(ReqId(1, 2, 3, 5), -1))
        peer.send(UnmountRequest(ReqId(1, 2, 3, 6)))
        peer.append(ReqId(1, 2, 3, 7))
        _, _, body = await peer.read_frame()
        assert body[0] == APPEND_ANSWERS_TYPE
        assert [answer.verdict for answer in parse_answers(body)[1]] == [Verdict.NOT_MOUNTED]
        other.append(ReqId(2, 2, 3, 8))
        other.send(FlushRequest(ReqId(2, 2, 3, 9)))
        assert await other.read() == FlushResponse(ReqId(2, 2, 3, 9), 0)
        peer.send(MountRequest(MOUNT, 0, 0))
        assert await peer.read() == MountResponse(MOUNT, MountState.READY)  # and no feed data before it
        peer.send(FeedRequest(ReqId(1, 2, 3, 10), -1))
        fed = await peer.read()
        assert isinstance(fed, FeedData)
        assert fed.transaction_id == 0


async def test_who_unmounts_while_its_mount_is_held_is_not_mounted_when_the_partition_comes() -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await _mounted(server)
        elsewhere = ReqId(1, 2, 4, 4)
        peer.send(MountRequest(elsewhere, -1, 0))
        peer.send(UnmountRequest(elsewhere._replace(seq_num=5)))
        peer.send(FlushRequest(ReqId(1, 2, 3, 6)))
        assert await peer.read() == FlushResponse(ReqId(1, 2, 3, 6), -1)  # both are handled by now
        server.registry.adopt({3: 2, 4: 2})
        peer.send(FlushRequest(ReqId(1, 2, 4, 7)))
        assert await peer.read() == FlushResponse(ReqId(1, 2, 4, 7), -1)  # and nothing before it
