"""How much of the loop's time goes to a peer that asks for the tables of many partitions."""

import asyncio

from server_tests.peers.test_old_owners import CLUSTER, asked, table
from waltz_protocol.codec import PEER
from waltz_protocol.handshake import encode_hello
from waltz_protocol.locks import SLOT_SCHEME
from waltz_protocol.messages.peer import PEER_VERSION, HandOverRequest

QUESTIONS = 1000
MOST_IN_A_TURN = 60


async def test_tables_of_many_partitions_are_made_in_bounded_turns() -> None:
    made = table(0, 2048)
    async with asked(lambda pid, answer: answer(made)) as (_, ears, address):
        _, writer = await asyncio.open_connection("127.0.0.1", int(address.split(":")[1]))
        writer.write(encode_hello((PEER_VERSION,), "test"))
        await asyncio.sleep(0.1)
        questions = (HandOverRequest(pid, 4, CLUSTER, SLOT_SCHEME) for pid in range(QUESTIONS))
        writer.write(b"".join(PEER.encode(question, PEER_VERSION) for question in questions))
        most = 0
        async with asyncio.timeout(60):
            while len(ears.asked) < QUESTIONS:
                before = len(ears.asked)
                await asyncio.sleep(0)
                most = max(most, len(ears.asked) - before)
        writer.close()
        assert 0 < most <= MOST_IN_A_TURN
