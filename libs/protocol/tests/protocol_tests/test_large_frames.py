"""Frames above the limit that a handler has passed over: the connection stays, and so do its bounds."""

from protocol_tests.peers import Recorder, connected, settings
from waltz_protocol.aio.channel import Channel
from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import FRAME_HEADER_SIZE, HEAD_BYTES, frame

LIMIT = 1024


async def test_a_frame_that_is_passed_over_is_work_and_the_end_of_a_batch() -> None:
    """A handler that answers it looks there at how many of its answers wait, as for any other."""
    judged: list[tuple[bytes, int]] = []

    class Refuses(Recorder):
        def channel_ready(self, channel: Channel) -> None:
            channel.pass_over(self._judge)
            super().channel_ready(channel)

        def _judge(self, head: memoryview, size: int) -> bool:
            judged.append((bytes(head), size))
            return True

    server = Refuses()
    async with connected(server, Recorder(), settings(max_frame_bytes=LIMIT)) as (accepted, channel):
        large = frame(CLIENT.magic, channel.version, b"h" * 100_000)
        channel.send(large[: FRAME_HEADER_SIZE + HEAD_BYTES])
        await server.until(lambda: "ended" in server.events)
        assert judged == [(b"h" * HEAD_BYTES, 100_000)]
        assert server.batches == [0]
        channel.send(
            large[FRAME_HEADER_SIZE + HEAD_BYTES :], large, frame(CLIENT.magic, channel.version, b"x")
        )
        await server.until(lambda: bool(server.bodies))
        assert server.bodies == [b"x"]
        assert len(judged) == 2
        assert accepted.ready
