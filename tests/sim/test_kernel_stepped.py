"""Disk threads whose code runs in steps: what jobs see of one another, and where a crash finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from tests.sim.kernel.disk import DATA_DIRECTORY, Seconds, SimFileSystem
from tests.sim.kernel.executor import Moment, SimExecutor
from tests.sim.kernel.loop import SimLoop
from tests.sim.kernel.process import Process, current
from tests.sim.kernel.stepped import SteppedExecutor, SteppedLock
from tests.sim.test_kernel_executor import FILE, Node, run

Work = Callable[[SteppedExecutor[int], SimFileSystem], Coroutine[Any, Any, None]]


def node(loop: SimLoop) -> Node:
    """Each sync takes a second."""
    made = Node(loop, executor=SteppedExecutor)
    made.disk.sync_seconds = Seconds(1.0, 1.0)
    made.disk.put(FILE, b"----")
    return made


def started(one: Node, work: Work) -> Process:
    """A process that has the disk."""

    async def main(executor: SimExecutor[int]) -> None:
        process = current()
        assert process is not None
        assert isinstance(executor, SteppedExecutor)
        await work(executor, one.disk.mount(process))

    return one.spawn(main)


def write(fs: SimFileSystem, letter: bytes, offset: int) -> None:
    file = fs.open(FILE)
    file.pwrite(letter, offset)
    file.sync()


@pytest.mark.parametrize("seed", range(3))
def test_a_mark_that_is_set_behind_a_write_is_not_seen_before_it(seed: int) -> None:
    """One job writes and then says so; the other one, which begins in between, syncs what it finds marked.
    What was marked and synced outlives a power cut."""

    async def main(loop: SimLoop) -> None:
        one, marks, synced = node(loop), list[int](), list[int]()

        def first(fs: SimFileSystem) -> None:
            for number in range(4):
                fs.open(f"{DATA_DIRECTORY}/journal", create=True).sync()
                fs.open(FILE).pwrite(b"x", number)
                marks.append(number)

        def second(fs: SimFileSystem) -> None:
            found = list(marks)
            fs.open(FILE).sync()
            synced.extend(found)

        async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
            executor.submit(first, fs)
            await asyncio.sleep(2.5)
            executor.submit(second, fs)
            await asyncio.Event().wait()

        process = started(one, work)
        await asyncio.sleep(3.7)
        process.host.power_off()
        await asyncio.sleep(1)
        assert synced == [0, 1]
        assert all(one.disk.content(FILE)[number] == ord("x") for number in synced)

    run(main, seed)


def test_a_sync_takes_along_what_was_written_before_it_began_and_nothing_after() -> None:
    contents = set()
    for seed in range(30):

        async def main(loop: SimLoop) -> None:
            one = node(loop)

            async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
                executor.submit(write, fs, b"1", 0)
                await asyncio.sleep(0.5)
                executor.submit(write, fs, b"2", 1)
                await asyncio.Event().wait()

            process = started(one, work)
            await asyncio.sleep(1.2)
            process.host.power_off()
            contents.add(one.disk.content(FILE))

        run(main, seed)
    assert contents == {b"1---", b"12--"}


def test_a_lock_is_held_through_a_system_call_and_given_to_who_waited_longest() -> None:
    async def main(loop: SimLoop) -> None:
        one = node(loop)
        order: list[tuple[str, float]] = []

        def job(fs: SimFileSystem, lock: SteppedLock, name: str) -> None:
            with lock:
                order.append((name, loop.now))
                write(fs, b"x", 0)

        async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
            lock = executor.lock()
            futures = []
            for name in "abc":
                futures.append(asyncio.wrap_future(executor.submit(job, fs, lock, name)))
                await asyncio.sleep(0.1)
            with pytest.raises(RuntimeError, match="a job holds the lock"), lock:
                pass
            await asyncio.gather(*futures)

        await started(one, work).wait_ended()
        assert [name for name, _ in order] == ["a", "b", "c"]
        assert order[2][1] > order[1][1] + 0.9 > order[0][1] + 1.8

    run(main)


def test_a_kill_stops_a_job_where_it_is_and_its_finally_blocks_do_not_run() -> None:
    ends: list[str] = []

    async def main(loop: SimLoop) -> None:
        one = node(loop)

        def job(fs: SimFileSystem) -> None:
            try:
                for number in range(4):
                    write(fs, b"x", number)
            finally:
                ends.append("world over" if loop.ended else "too early")

        async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
            executor.submit(job, fs)
            await asyncio.Event().wait()

        process = started(one, work)
        await asyncio.sleep(1.5)
        process.kill()
        await asyncio.sleep(20)
        assert one.disk.content(FILE) == b"xx--"

    run(main)
    assert ends == ["world over"]


def test_a_paused_process_goes_no_further_than_the_call_it_is_in() -> None:
    async def main(loop: SimLoop) -> None:
        one = node(loop)

        async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
            executor.submit(write, fs, b"1", 0)
            await asyncio.wrap_future(executor.submit(write, fs, b"2", 1))

        process = started(one, work)
        process.pause()
        await asyncio.sleep(5)
        assert one.disk.content(FILE) == b"----"
        process.resume()
        await process.wait_ended()
        assert one.disk.content(FILE) == b"12--"

    run(main)


def test_a_crash_can_be_ordered_after_the_effects_and_inside_a_job() -> None:
    contents = set()
    for seed in range(20):
        for moment in Moment:

            async def main(loop: SimLoop, moment: Moment = moment) -> None:
                one = node(loop)
                told: list[int] = []

                def job(fs: SimFileSystem) -> None:
                    for number in range(3):
                        write(fs, b"x", number)
                    loop.call_soon_threadsafe(told.append, 1)

                async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
                    process = current()
                    assert process is not None
                    executor.crash_next_job(moment, process.kill)
                    executor.submit(job, fs)
                    await asyncio.sleep(60)

                await started(one, work).wait_ended()
                await asyncio.sleep(20)
                if loop.now < 60:
                    assert told == []
                contents.add((moment, one.disk.content(FILE).count(b"x")))

            run(main, seed)
    assert contents == {(Moment.UNDELIVERED, 3), *((Moment.INSIDE, count) for count in range(4))}


def test_what_a_job_has_changed_counts_when_it_has_ended_and_for_no_other_job() -> None:
    async def main(loop: SimLoop) -> None:
        one = node(loop)
        state = {1: 10, 2: 20}

        def first(fs: SimFileSystem) -> None:
            state[1] += 1
            write(fs, b"1", 0)
            del state[2]
            write(fs, b"2", 1)

        async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
            executor.observe, executor.told = lambda: dict(state), dict(state)
            last = asyncio.wrap_future(executor.submit(first, fs))
            await asyncio.sleep(0.5)
            await asyncio.wrap_future(executor.submit(write, fs, b"3", 2))
            assert state == {1: 11}
            assert executor.told == {1: 10, 2: 20}
            await last
            assert executor.told == {1: 11}

        process = started(one, work)
        await process.wait_ended()
        assert process.exit_error is None

    run(main)


def test_errors_of_a_job_arrive() -> None:
    async def main(loop: SimLoop) -> None:
        one = node(loop)

        def fail(fs: SimFileSystem) -> None:
            write(fs, b"x", 0)
            raise ValueError("no")

        async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
            cancelled = executor.submit(write, fs, b"x", 1)
            assert cancelled.cancel()
            with pytest.raises(ValueError, match="no"):
                await asyncio.wrap_future(executor.submit(fail, fs))

        process = started(one, work)
        await process.wait_ended()
        assert process.exit_error is None
        assert one.disk.content(FILE) == b"x---"

    run(main)


def test_a_change_takes_a_moment_in_which_other_jobs_run() -> None:
    async def main(loop: SimLoop) -> None:
        one = node(loop)
        order: list[str] = []

        def job(fs: SimFileSystem, name: str) -> None:
            file = fs.open(f"{DATA_DIRECTORY}/{name}", create=True)
            for number in range(20):
                file.pwrite(b"x", number)
                order.append(name)

        async def work(executor: SteppedExecutor[int], fs: SimFileSystem) -> None:
            await asyncio.gather(*(asyncio.wrap_future(executor.submit(job, fs, name)) for name in "ab"))

        await started(one, work).wait_ended()
        assert sorted(order) == ["a"] * 20 + ["b"] * 20
        assert sum(before != after for before, after in pairwise(order)) > 10

    run(main)
