"""What answers from memory and jobs that go first must not change: who finds out that a disk hangs, how deep
answers nest, whom feeds wait for."""

import asyncio
from pathlib import Path
from typing import Any

from storage_tests.node_support import GatedExecutor, connected, record, running_node
from storage_tests.support import wire_record
from waltz_protocol.messages import storage
from waltz_storage.service.disk_pool import STALL_SECONDS
from waltz_storage.service.requests import parse_routed

PARTITIONS = tuple(range(4))


async def test_a_node_whose_disk_threads_all_hang_does_not_answer_the_idle_check(tmp_path: Path) -> None:
    """Two of two disk threads hang in the sync of an append. The question of `IdleCheck` is one of another,
    idle, partition."""
    gate = GatedExecutor()
    async with running_node(tmp_path, executor=gate, assign=PARTITIONS) as node, connected(node) as server:
        for partition_id in PARTITIONS:
            await server.append(4, partition_id, [record(0)])
        gate.open = False  # from here on nothing that needs a disk thread gets one
        done: list[Exception | None] = []
        for partition_id in (0, 1):
            server.submit_append(4, partition_id, 1, wire_record(1), done.append)
        while len(gate.waiting) < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(1.1 * STALL_SECONDS)
        asked = asyncio.ensure_future(server.max_transaction_id(4, 2))  # noqa: TID251
        await asyncio.wait([asked], timeout=0.5)
        answered = asked.done()
        gate.release()
        await asked
    assert not answered, "the node answers the idle check although every disk thread hangs"


class _Channel:
    closed, version, pending_bytes = False, 1, 0

    def __init__(self) -> None:
        self.sent = 0

    def send(self, *parts: Any) -> None:
        self.sent += len(parts)


async def test_questions_behind_a_job_are_answered_without_recursion(tmp_path: Path) -> None:
    """Requests that raise the fence are always queued, so there is no bound on how many wait for a disk that
    hangs; once the fence is durable each job of them is run from the end of the one before."""
    gate = GatedExecutor()
    async with running_node(tmp_path, executor=gate, assign=(0,)) as node:
        channel: Any = _Channel()
        queue = node.pool.queue(0)
        gate.open = False
        count = 400 * node.pool.queue_limits.job_requests
        for number in range(count):
            message = storage.MaxTransactionIdRequest(number + 1, number, 0, False)
            queue.offer(parse_routed(channel, message, 0.0))
            if not number:
                queue.kick()
        errors: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: errors.append(context["exception"])
        )
        gate.release()
        for _ in range(2000):
            await asyncio.sleep(0)
        stuck = not queue.idle
        node.pool._idle.set()  # `close` would not end
        assert not errors, (repr(errors[:1]), channel.sent, count, f"stuck {stuck}")
        assert channel.sent == count


async def test_feeds_of_a_server_of_0_13_2_do_not_pass_appends(tmp_path: Path) -> None:
    """It reads the headers of 64 records from a node whenever its feed cache misses: no session opens."""
    gate = GatedExecutor()
    async with running_node(tmp_path, executor=gate, assign=PARTITIONS) as node, connected(node) as server:
        for partition_id in PARTITIONS:
            await server.append(4, partition_id, [record(0)])
        gate.open = False
        done: list[Exception | None] = []
        server.submit_append(4, 0, 1, wire_record(1), done.append)
        while not gate.waiting:
            await asyncio.sleep(0)
        feeds = [
            asyncio.ensure_future(server.record_header_list(4, partition_id, 0, 64))  # noqa: TID251
            for partition_id in (1, 2, 3)
        ]
        while len(gate.waiting) < 4:
            await asyncio.sleep(0)
        gate.step()
        for _ in range(50):
            await asyncio.sleep(0)
        first = len(done)
        gate.release()
        await asyncio.gather(*feeds)
    assert first == 1, "a feed that came later was read before the append"
