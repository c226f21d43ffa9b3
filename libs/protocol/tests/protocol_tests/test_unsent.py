"""Replies nobody takes, over all connections."""

from __future__ import annotations

from waltz_protocol.aio.unsent import NOTICED_BYTES, UnsentReplies


class FakeChannel:
    """Counts what is queued."""

    def __init__(self, pending_bytes: int = 0) -> None:
        self.pending_bytes = pending_bytes
        self.closed = False

    def send(self, *parts: bytes | bytearray | memoryview) -> None:
        self.pending_bytes += sum(map(len, parts))


def test_storage_7_13_peers_that_take_nothing_share_the_memory() -> None:
    limit = 40 * NOTICED_BYTES
    unsent = UnsentReplies(limit)
    deaf = [FakeChannel() for _ in range(10)]
    for _ in range(100):
        for channel in deaf:
            if not unsent.beyond_share(channel):
                channel.send(bytes(NOTICED_BYTES // 2))
                unsent.sent(channel)
    assert sum(channel.pending_bytes for channel in deaf) <= limit + len(deaf) * NOTICED_BYTES
    honest = FakeChannel(NOTICED_BYTES)
    unsent.sent(honest)
    assert not unsent.beyond_share(honest)


def test_what_is_taken_or_closed_counts_no_more() -> None:
    unsent = UnsentReplies(4 * NOTICED_BYTES)
    first, second = FakeChannel(5 * NOTICED_BYTES), FakeChannel(3 * NOTICED_BYTES)
    unsent.sent(first)
    unsent.sent(second)
    assert unsent.beyond_share(first)
    assert unsent.beyond_share(second)
    second.pending_bytes = 0
    assert unsent.beyond_share(first)
    first.pending_bytes = 2 * NOTICED_BYTES
    assert not unsent.beyond_share(first)
    first.pending_bytes, first.closed = 9 * NOTICED_BYTES, True
    third = FakeChannel(3 * NOTICED_BYTES)
    unsent.sent(third)
    assert not unsent.beyond_share(third)
