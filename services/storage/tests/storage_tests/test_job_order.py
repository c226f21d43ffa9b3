"""Which job runs next, and which questions need no disk thread."""

import asyncio
from pathlib import Path

from waltz_protocol.types import SessionInfo
from waltz_storage.service.job_order import FIRST_IN_A_ROW, JobLine

from .node_support import GatedExecutor, connected, record, records, running_node
from .support import wire_record
from .test_inline import CountingExecutor

PARTITIONS = tuple(range(4))


def test_who_goes_first_passes_the_others_and_stops_nobody() -> None:
    line: JobLine[str] = JobLine()
    line.add("append", first=False)
    for number in range(2 * FIRST_IN_A_ROW):
        line.add(f"open {number}", first=True)
    taken = [line.take() for _ in range(2 * FIRST_IN_A_ROW + 1)]
    assert taken[FIRST_IN_A_ROW] == "append"
    assert [job for job in taken if job != "append"] == [f"open {n}" for n in range(2 * FIRST_IN_A_ROW)]


async def test_a_session_opens_with_two_jobs_on_a_thread_per_copy(tmp_path: Path) -> None:
    """The fence and the mark need the disk, and nothing else of a take-over but the comparison does: a node
    would otherwise hand six jobs for each partition to its threads."""
    executor = CountingExecutor()
    async with (
        running_node(tmp_path, executor=executor, assign=PARTITIONS) as node,
        connected(node) as server,
    ):
        for partition_id in PARTITIONS:
            await server.last_session_and_end(4, partition_id)
            await server.set_low_water_mark(4, partition_id, -1)
        handed = executor.submitted
        for partition_id in PARTITIONS:
            assert await server.last_session_and_end(4, partition_id) == (SessionInfo(4, -1, -1), -1)
            assert await server.last_session_and_end(5, partition_id) == (SessionInfo(4, -1, -1), -1)
            assert await server.set_low_water_mark_and_ask(5, partition_id, -1) == -1
            await server.append(5, partition_id, [])
        assert executor.submitted - handed == 2 * len(PARTITIONS)
        await server.append(5, 0, [record(0)])
        assert executor.submitted - handed == 2 * len(PARTITIONS) + 1
        assert all(node.manager.get(partition_id).durable_fence == 5 for partition_id in PARTITIONS)


async def test_what_opens_a_session_passes_the_appends_of_other_partitions(tmp_path: Path) -> None:
    gate = GatedExecutor()
    async with (
        running_node(tmp_path, executor=gate, assign=PARTITIONS) as node,
        connected(node) as server,
    ):
        for partition_id in PARTITIONS:
            await server.last_session_info(4, partition_id)
        gate.open = False
        done: list[Exception | None] = []
        for partition_id in (1, 2, 3):
            server.submit_append(4, partition_id, 1, wire_record(0), done.append)
        opening = asyncio.ensure_future(server.last_session_and_end(5, 0))  # noqa: TID251
        while len(gate.waiting) < 4:
            await asyncio.sleep(0)
        gate.step()
        assert await opening == (SessionInfo(-1, -1, -1), -1)
        assert not done
        gate.release()
        while len(done) < 3:
            await asyncio.sleep(0)


async def test_safety_c1_a_question_waits_for_the_append_before_it(tmp_path: Path) -> None:
    """Memory answers only while no job of the partition waits or runs."""
    gate = GatedExecutor()
    async with running_node(tmp_path, executor=gate, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, [record(0)])
        gate.open = False
        done: list[Exception | None] = []
        server.submit_append(4, 0, 1, wire_record(1), done.append)
        while not gate.waiting:
            await asyncio.sleep(0)
        last = asyncio.ensure_future(server.max_transaction_id(4, 0))  # noqa: TID251
        while node.pool.queue(0).size < 1:
            await asyncio.sleep(0)
        assert not last.done()
        gate.release()
        assert await last == 1


async def test_safety_b2_memory_answers_no_question_that_raised_the_fence(tmp_path: Path) -> None:
    gate = GatedExecutor()
    async with running_node(tmp_path, executor=gate, assign=(0,)) as node, connected(node) as server:
        await server.append(4, 0, records(0, 1))
        gate.open = False
        for session_id in (5, 6):
            asked = asyncio.ensure_future(server.max_transaction_id(session_id, 0))  # noqa: TID251
            while not gate.waiting:
                await asyncio.sleep(0)
            assert not asked.done()
            gate.step()
            assert await asked == 0
            assert node.manager.get(0).durable_fence == session_id
