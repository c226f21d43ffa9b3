"""Disk threads on virtual time: when jobs run, when their results arrive, and what a kill leaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.sim.kernel.disk import DATA_DIRECTORY, Seconds, SimDisk, SimFileSystem
from tests.sim.kernel.executor import Moment, SimExecutor
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process, current
from waltz_testkit.faulty_disk import LostWrite

FILE = f"{DATA_DIRECTORY}/file"


class Node:
    """A process with a disk, an executor and a diary that outlives it."""

    def __init__(
        self, loop: SimLoop, threads: int = 4, executor: type[SimExecutor[int]] = SimExecutor
    ) -> None:
        self.loop, self.threads, self.executor = loop, threads, executor
        self.disk = SimDisk(loop.rng("disk"))
        self.diary: list[tuple[str, float]] = []

    def note(self, what: str) -> None:
        self.diary.append((what, self.loop.time()))

    def spawn(self, main: Callable[[SimExecutor[int]], Coroutine[Any, Any, None]]) -> Process:
        async def run() -> None:
            process = current()
            assert process is not None
            await main(self.executor(self.loop, self.disk, process, threads=self.threads))

        return self.loop.spawn_process("storage-1", self.loop.host("storage-1"), run)

    def write(self, number: int) -> str:
        """A job: one write, one sync, then a callback on the loop."""
        process = current()
        assert process is not None
        file = self.disk.mount(process).open(FILE, create=True)
        file.pwrite(b"x", number)
        file.sync()
        self.note(f"job {number}")
        self.loop.call_soon_threadsafe(self.note, f"told {number}")
        return f"result {number}"


def run(main: Callable[[SimLoop], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    loop = SimLoop(seed)
    loop.run(main(loop))
    assert loop.errors == []


def test_a_job_runs_later_in_one_step_and_its_result_arrives_when_its_time_is_over() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop)
        node.disk.sync_seconds = Seconds(1.0, 1.0)

        async def work(executor: SimExecutor[int]) -> None:
            future = executor.submit(node.write, 0)
            assert not future.done()
            assert node.diary == []
            assert await asyncio.wrap_future(future) == "result 0"
            node.note("result")

        await node.spawn(work).wait_ended()
        times = dict(node.diary)
        assert [what for what, _ in node.diary] == ["job 0", "told 0", "result"]
        assert 0 < times["job 0"] < 0.01
        assert times["told 0"] >= times["job 0"] + 1.0

    run(main)


def test_no_more_jobs_at_once_than_threads() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop, threads=2)
        node.disk.sync_seconds = Seconds(1.0, 1.0)

        async def work(executor: SimExecutor[int]) -> None:
            futures = [executor.submit(node.write, number) for number in range(4)]
            await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))

        await node.spawn(work).wait_ended()
        starts = sorted(at for what, at in node.diary if what.startswith("job"))
        assert starts[1] < 0.01
        assert starts[2] >= 1.0

    run(main)


def test_errors_arrive_too_and_cancelled_jobs_never_run() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop, threads=1)

        async def work(executor: SimExecutor[int]) -> None:
            def fail() -> None:
                raise ValueError("no")

            failing, second = executor.submit(fail), executor.submit(node.write, 1)
            assert second.cancel()
            with pytest.raises(ValueError, match="no"):
                await asyncio.wrap_future(failing)
            await asyncio.wrap_future(executor.submit(node.write, 2))
            executor.shutdown()
            with pytest.raises(RuntimeError):
                executor.submit(node.write, 3)

        process = node.spawn(work)
        await process.wait_ended()
        assert process.exit_error is None
        assert [what for what, _ in node.diary] == ["job 2", "told 2"]

    run(main)


def test_a_killed_process_does_neither_run_nor_hear() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop)

        async def work(executor: SimExecutor[int]) -> None:
            executor.submit(node.write, 0)
            await asyncio.sleep(10)

        process = node.spawn(work)
        await asyncio.sleep(0)
        process.kill()
        await asyncio.sleep(20)
        assert node.diary == []

    run(main)


def test_a_kill_can_be_ordered_after_the_effects_and_before_the_news() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop)

        async def work(executor: SimExecutor[int]) -> None:
            process = current()
            assert process is not None
            executor.crash_next_job(Moment.UNDELIVERED, process.kill)
            executor.submit(node.write, 0)
            await asyncio.sleep(10)

        await node.spawn(work).wait_ended()
        await asyncio.sleep(20)
        assert [what for what, _ in node.diary] == ["job 0"]
        assert node.disk.content(FILE) == b"x"

    run(main)


def test_a_kill_can_be_ordered_inside_a_job() -> None:
    contents = set()
    for seed in range(30):

        async def main(loop: SimLoop) -> None:
            node = Node(loop)

            async def work(executor: SimExecutor[int]) -> None:
                process = current()
                assert process is not None
                executor.crash_next_job(Moment.INSIDE, process.kill)
                for number in range(4):
                    executor.submit(node.write, number)
                    await asyncio.sleep(1)

            await node.spawn(work).wait_ended()
            contents.add(node.disk.files().get(FILE))

        run(main, seed)
    assert {None, b"", b"x", b"xx"} <= contents


def test_power_that_fails_during_a_sync_takes_what_it_was_to_save_and_nothing_that_came_after() -> None:
    """The job writes and syncs one byte after the other, a second each; the power fails when the second sync
    is on its way."""
    contents = set()
    for seed in range(40):

        async def main(loop: SimLoop) -> None:
            node = Node(loop)
            told: list[int] = []

            def job() -> None:
                process = current()
                assert process is not None
                system = node.disk.mount(process)
                file = system.open(FILE, create=True)
                system.sync_dir(DATA_DIRECTORY)
                for number in range(4):
                    file.pwrite(b"x", number)
                    file.sync()
                    loop.call_soon_threadsafe(told.append, number)

            async def work(executor: SimExecutor[int]) -> None:
                node.disk.sync_seconds = Seconds(1.0, 1.0)
                executor.submit(job)
                await asyncio.sleep(100)

            process = node.spawn(work)
            await asyncio.sleep(2.5)  # directory at 1, first byte at 2, second at 3
            process.host.power_off()
            await asyncio.sleep(10)
            assert told == [0]
            contents.add(node.disk.content(FILE))

        run(main, seed)
    assert contents == {b"x", b"xx"}


def test_what_a_job_has_changed_counts_when_its_time_is_over() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop)
        state = {1: 10, 2: 20}

        async def work(executor: SimExecutor[int]) -> None:
            executor.observe, executor.told = lambda: dict(state), dict(state)

            def job() -> None:
                node.write(0)
                state[1] += 1
                del state[2]
                state[3] = 30

            node.disk.sync_seconds = Seconds(1.0, 1.0)
            executor.submit(job)
            await asyncio.sleep(0.5)
            assert state == {1: 11, 3: 30}
            assert executor.told == {1: 10, 2: 20}
            await asyncio.sleep(1.0)
            assert executor.told == state

        process = node.spawn(work)
        await process.wait_ended()
        assert process.exit_error is None

    run(main)


def test_a_paused_process_hears_later() -> None:
    async def main(loop: SimLoop) -> None:
        node = Node(loop)

        async def work(executor: SimExecutor[int]) -> None:
            await asyncio.wrap_future(executor.submit(node.write, 0))

        process = node.spawn(work)
        process.pause()
        await asyncio.sleep(5)
        assert node.diary == []
        process.resume()
        await process.wait_ended()
        assert [what for what, _ in node.diary] == ["job 0", "told 0"]

    run(main)


def test_a_sync_takes_along_nothing_that_another_job_writes_after_it() -> None:
    """Two partitions share a file. The code of the first job has run, its write comes after its long sync;
    the power fails between the sync of the second job and that write."""

    async def main(loop: SimLoop) -> None:
        node = Node(loop)
        own, late = f"{DATA_DIRECTORY}/own", f"{DATA_DIRECTORY}/late"
        node.disk.put(FILE, b"--")
        node.disk.put(own, b"-")

        def first(fs: SimFileSystem) -> None:
            node.disk.sync_seconds = Seconds(2.0, 2.0)
            fs.open(own).sync()
            fs.open(FILE).pwrite(b"1", 0)
            fs.open(late, create=True)
            node.disk.sync_seconds = Seconds(0.1, 0.1)

        def second(fs: SimFileSystem) -> None:
            file = fs.open(FILE)
            file.pwrite(b"2", 1)
            file.sync()
            fs.sync_dir(DATA_DIRECTORY)

        async def work(executor: SimExecutor[int]) -> None:
            process = current()
            assert process is not None
            fs = node.disk.mount(process)
            executor.submit(first, fs)
            await asyncio.sleep(0.5)
            await asyncio.wrap_future(executor.submit(second, fs))
            assert process.host is not None
            loop.kernel_later(0.5, process.host.power_off)
            await asyncio.Event().wait()

        await node.spawn(work).wait_ended()
        assert node.disk.content(FILE) == b"-2"
        assert not node.disk.exists(late)

    for seed in range(5):
        run(main, seed)


@pytest.mark.parametrize("again", [0, 1])
def test_a_lost_write_is_out_of_the_memory_when_its_sync_is_done_and_not_later(again: int) -> None:
    """What the next process finds, and what it writes in its place."""

    async def main(loop: SimLoop) -> None:
        node = Node(loop)
        node.disk.put(FILE, b"old")
        node.disk.sync_seconds = Seconds(1.0, 1.0)

        def job(fs: SimFileSystem) -> None:
            file = fs.open(FILE)
            file.pwrite(b"new", 0)
            node.disk.lose_write = LostWrite(lambda path: True, random.Random(1), True, lambda *_: None)
            file.sync()

        async def work(executor: SimExecutor[int]) -> None:
            process = current()
            assert process is not None
            executor.submit(job, node.disk.mount(process))
            await asyncio.Event().wait()

        process = node.spawn(work)
        await asyncio.sleep(2.0)
        process.kill()
        file = node.disk.mount(node.spawn(work)).open(FILE)
        if again:
            file.pwrite(b"2nd", 0)
            file.sync()
        assert file.pread(3, 0) == (b"2nd" if again else b"old")

    run(main)
