"""A writer that waits in line gets its turn beside one that sends the next append from `on_done`."""

from typing import Any

from client_tests.conftest import ConnectClient
from waltz_client import WindowFullError


async def test_an_append_gets_its_turn_beside_a_pipeline_of_append_nowait(connect: ConnectClient) -> None:
    client = await connect(maxConcurrentTransactions=2)
    await client.writable(0)
    going, sent = True, 0

    def again(_: Any = None) -> None:
        nonlocal sent
        if going:
            try:
                client.append_nowait(partition=0, data=b"x", on_done=again)
            except WindowFullError:
                return  # a pipeline would wait with `writable` now
            sent += 1

    again()
    again()
    try:
        await client.append(partition=0, data=b"waits", deadline_seconds=3.0)
    finally:
        going = False
    assert sent >= 2, "the pipeline ran beside it"
