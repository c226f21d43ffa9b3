"""A peer that has asked for a lock table once and reads nothing."""

import pytest

from server_tests.peers.test_old_owners import CLUSTER, Ears, table
from waltz_protocol.codec import PEER
from waltz_protocol.locks import SLOT_SCHEME
from waltz_protocol.messages.peer import PEER_VERSION, HandOverRequest, PeerPing
from waltz_server.partition.hand_over import LockHandOver
from waltz_server.peers import protocol
from waltz_server.peers.protocol import WatchedConnection
from waltz_testkit.client_peers import split_frames


class FullChannel:
    """Its peer reads nothing."""

    def __init__(self) -> None:
        self.sent = 0
        self.closed = False

    def send(self, *parts: bytes) -> None:
        self.sent += 0 if self.closed else sum(map(len, parts))

    def charge(self, units: int) -> None:
        """No turns here."""

    def close(self, reason: str) -> None:
        self.closed = True


@pytest.mark.parametrize("asks", [False, True])
def test_who_reads_nothing_makes_no_heap(asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, watched = FullChannel(), WatchedConnection(Ears(lambda _, answer: answer(None)))
    request = PEER.encode(HandOverRequest(0, 1, CLUSTER, SLOT_SCHEME), PEER_VERSION)
    ping = PEER.encode(PeerPing(1, "s_2", {}), PEER_VERSION)
    ((_, request_body),) = split_frames(request)
    ((_, ping_body),) = split_frames(ping)
    if asks:
        watched.frame_received(channel, memoryview(request_body))  # type: ignore[arg-type]
    watched.writable_changed(channel, False)  # type: ignore[arg-type]
    monkeypatch.setattr(protocol, "MAX_UNSENT_BYTES", 500_000)
    before = channel.sent
    for _ in range(100_000):
        watched.frame_received(channel, memoryview(ping_body))  # type: ignore[arg-type]
        if asks:
            watched.frame_received(channel, memoryview(request_body))  # type: ignore[arg-type]
    assert channel.closed or channel.sent - before < 1_000_000, channel.sent


@pytest.mark.parametrize("given", [None, table(0, 2048)], ids=["no table", "tables"])
def test_answers_that_wait_are_bounded(given: LockHandOver | None) -> None:
    channel, watched = FullChannel(), WatchedConnection(Ears(lambda _, answer: answer(given)))
    ((_, request),) = split_frames(PEER.encode(HandOverRequest(0, 1, CLUSTER, SLOT_SCHEME), PEER_VERSION))
    watched.frame_received(channel, memoryview(request))  # type: ignore[arg-type]
    before = channel.sent
    watched.writable_changed(channel, False)  # type: ignore[arg-type]
    for _ in range(2000):
        watched.frame_received(channel, memoryview(request))  # type: ignore[arg-type]
    assert channel.sent == before
    assert not channel.closed
    watched.writable_changed(channel, True)  # type: ignore[arg-type]
    most = protocol.MAX_UNSENT_BYTES if given else 2000 * before
    assert most - before < channel.sent - before <= most
