"""Who one claims to be: other clients' ids and request ids, and generations that never come."""

import asyncio

from tests.integration.hostile.wires import Target, Wire, wire
from waltz_protocol.codec import CLIENT
from waltz_protocol.messages import client
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import ReqId, data_checksum

_LAST_I32 = 2**31 - 1
_LAST_I64 = 2**63 - 1
_FORGED = b"forged"
_OWN = 900_000


async def _send(made: Wire, target: Target, *messages: Message) -> None:
    await made.send(b"".join(CLIENT.encode(message, target.version) for message in messages))


async def _answer(made: Wire, target: Target) -> object:
    return CLIENT.decode(memoryview(await made.frame()), target.version)


def _appends(after: ReqId) -> list[Message]:
    """Under the request ids that follow."""
    numbers = ((after.seq_num + ahead + 2**31) % 2**32 - 2**31 for ahead in range(1, 6))
    return [
        client.AppendRequest(
            after._replace(seq_num=number), -1, (), (), (), 0, _FORGED, data_checksum(_FORGED)
        )
        for number in numbers
    ]


async def impostor(target: Target) -> None:
    """Reads in the feed whose request ids come next and appends under them: as itself, and on a connection
    that names the other's client id from its first message on, with the largest numbers there are."""
    async with wire(target) as reader, wire(target) as forger, wire(target) as thief:
        own = ReqId(_OWN, 0, 0, 1)
        await _send(reader, target, client.MountRequest(own, -1, 0))
        await _send(forger, target, client.MountRequest(ReqId(_OWN + 1, 0, 0, 1), -1, 0))
        mark, ready, named = -1, False, False
        until = asyncio.get_running_loop().time() + target.seconds
        while asyncio.get_running_loop().time() < until:
            answer = await _answer(reader, target)
            if isinstance(answer, client.MountResponse | client.FeedSuspended):
                ready = True
                await _send(reader, target, client.FeedRequest(own, mark))
            elif isinstance(answer, client.FeedData):
                mark = answer.transaction_id
                if ready and not named:
                    named = True
                    for generation in (0, answer.req_id.generation, _LAST_I32):
                        claim = answer.req_id._replace(generation=generation)
                        await _send(thief, target, client.MountRequest(claim, -1, _LAST_I64))
                if ready:
                    await _send(forger, target, *_appends(answer.req_id))
                    await _send(thief, target, *_appends(answer.req_id))


async def future_flushes(target: Target) -> None:
    """Flushes of a generation that does not come, more than may wait; then somebody who just wants to
    mount."""
    flushes = [
        CLIENT.encode(client.FlushRequest(ReqId(_OWN, _LAST_I32, partition, 1)), target.version)
        for partition in range(target.partitions)
    ]
    async with wire(target) as flood, wire(target) as newcomer:
        await flood.send(b"".join(flushes) * 10_100)
        await _send(flood, target, client.HighWaterMarkRequest(ReqId(_OWN, 0, 0, 1)))
        await _answer(flood, target)  # all of them have arrived
        mount = ReqId(_OWN + 1, 0, 0, 1)
        await _send(newcomer, target, client.MountRequest(mount, -1, 0))
        answer = await _answer(newcomer, target)
        while not isinstance(answer, client.MountResponse):
            answer = await _answer(newcomer, target)
        assert answer.state is client.MountState.READY, answer
