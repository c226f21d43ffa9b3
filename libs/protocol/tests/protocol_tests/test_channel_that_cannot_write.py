"""A connection whose write raises: frames are lost, nothing may follow them, and nobody may wait for them."""

from protocol_tests.peers import Recorder, connected
from waltz_protocol.frame import Magic, frame


async def test_it_is_cut() -> None:
    class NoMemory:
        def __getattr__(self, name: str) -> object:
            return getattr(transport, name)

        def write(self, _: bytes) -> None:
            raise MemoryError

    server, client = Recorder(), Recorder()
    async with connected(server, client) as (_, channel):
        transport, channel._transport = channel._transport, NoMemory()  # type: ignore[assignment]
        channel.send(frame(Magic.CLIENT, 4, b"lost"))
        await client.until_closed()
        await server.until_closed()
    assert (server.bodies, client.reasons) == ([], ["internal error: MemoryError: "])
