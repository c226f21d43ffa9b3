"""Lone appends on the loop: when the gate opens and closes, and that nothing else takes that way."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from waltz_storage.service.inline import InlineGate, InlineLimits

from .node_support import GatedExecutor, connected, records, running_node

LIMITS = InlineLimits(max_seconds=0.02, usual_seconds=0.002, trial_jobs=3, max_trial_jobs=12, calm_jobs=5)


class CountingExecutor(GatedExecutor):
    """Runs at once and counts."""

    submitted = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        return super().submit(fn, *args, **kwargs)


def measured(gate: InlineGate, seconds: float, times: int, *, inline: bool = False) -> None:
    for _ in range(times):
        gate.took(seconds, inline=inline)


def test_the_gate_opens_after_fast_jobs_on_threads() -> None:
    gate = InlineGate(LIMITS)
    measured(gate, 0.0001, 2)
    assert not gate.open
    measured(gate, 0.0001, 1)
    assert gate.open


def test_a_disk_that_is_always_a_little_slow_keeps_the_gate_shut() -> None:
    gate = InlineGate(LIMITS)
    measured(gate, 0.008, 100)
    assert not gate.open


def test_one_slow_inline_job_shuts_the_gate_for_longer_each_time_until_it_was_calm() -> None:
    gate = InlineGate(LIMITS)
    measured(gate, 0.0001, 3)
    for trial in (3, 6, 12, 12):
        gate.took(0.021, inline=True)
        measured(gate, 0.0001, trial - 1)
        assert not gate.open
        measured(gate, 0.0001, 100)
        assert gate.open
    measured(gate, 0.0001, 5, inline=True)
    gate.took(0.021, inline=True)
    measured(gate, 0.0, 100)
    assert gate.open


def test_a_slow_job_on_a_thread_starts_the_trial_again() -> None:
    gate = InlineGate(LIMITS)
    measured(gate, 0.0001, 2)
    gate.took(0.021, inline=False)
    measured(gate, 0.0, 2)
    assert not gate.open


async def test_only_a_lone_record_runs_on_the_loop(tmp_path: Path) -> None:
    executor = CountingExecutor()
    at_once = InlineLimits(max_seconds=60, usual_seconds=60, trial_jobs=0)
    async with (
        running_node(tmp_path, executor=executor, inline_limits=at_once, assign=(0,)) as node,
        connected(node) as server,
    ):
        node.manager.get(0).set_flags(1, True)
        await server.last_session_info(1, 0)
        await server.set_low_water_mark(1, 0, -1)
        handed = executor.submitted
        await server.append(1, 0, records(0, 1))
        await server.append(1, 0, records(1, 1))
        assert executor.submitted == handed
        await server.append(1, 0, records(2, 2))
        assert executor.submitted == handed + 1
        assert await server.max_transaction_id(1, 0) == 3
        assert list(await server.record_list(1, 0, 0, 10)) == records(0, 4)
