"""Runs the demo: cluster up, load with faults, read back, check, report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from flights.checker import FlightChecker, Verdict
from flights.data import FlightPlan, load_plan
from flights.faults import Fault, FaultPlan
from flights.load import Load
from flights.measures import Measures
from flights.reader import log_lengths, read_all
from flights.writer import WriterArguments
from waltz_tools.errors import ToolError
from waltz_tools.local import LocalCluster, LocalSettings


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """`rows` None = all 336,776. `in_flight` is per writer, over all partitions."""

    directory: Path
    rows: int | None = None
    writers: int = 2
    in_flight: int = 192
    partitions: int = 8
    tls: bool = True
    deadline_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Everything the final table shows."""

    verdict: Verdict
    measures: Measures
    faults: list[Fault]
    read_seconds: float
    session_timeout_ms: int
    tls: bool

    @property
    def passed(self) -> bool:
        return self.verdict.passed


async def run_demo(settings: DemoSettings, console: Console) -> DemoResult:
    """Run it in an empty cluster directory. ToolError and its kin when it cannot be run to its end."""
    local = LocalSettings(
        settings.directory, storage_nodes=3, servers=2, partitions=settings.partitions, tls=settings.tls
    )
    plan = load_plan(settings.rows, settings.partitions)
    with _bars(console) as bars:
        starting = bars.add_task("starting the cluster", total=None)
        up = False

        def step(line: str) -> None:
            if not up:
                bars.update(starting, description=line)

        async with LocalCluster(local, report=step) as cluster:
            bars.update(starting, description="the cluster is up", total=1, completed=1)
            up = True
            lengths = await log_lengths(cluster.client_config)
            if any(length >= 0 for length in lengths.values()):
                raise ToolError(
                    f"{settings.directory} holds transactions already: give the demo a new directory"
                )
            measures, faults = await _write(settings, cluster, plan, bars)
            checker = FlightChecker(plan.flights)
            reading = bars.add_task("reading everything back", total=len(plan.flights))
            read_seconds = await read_all(
                cluster.client_config, checker, lambda count: bars.advance(reading, count)
            )
            verdict = checker.verdict()
    return DemoResult(verdict, measures, faults, read_seconds, local.session_timeout_ms, settings.tls)


async def _write(
    settings: DemoSettings, cluster: LocalCluster, plan: FlightPlan, bars: Progress
) -> tuple[Measures, list[Fault]]:
    writing = bars.add_task("appending flights", total=len(plan.flights))
    moved = asyncio.Event()

    def changed() -> None:
        bars.update(writing, completed=load.committed)
        moved.set()

    def announce(line: str) -> None:
        bars.console.print(f"  {line}")
        bars.update(writing, description=f"appending flights ({line})")

    async def reached(share: float) -> None:
        while load.committed < share * len(plan.flights):
            moved.clear()
            await moved.wait()

    load = Load(_arguments(settings, cluster), cluster.directory.logs_dir, changed)
    async with asyncio.TaskGroup() as group:
        writing_task = group.create_task(load.run())
        faults_task = group.create_task(FaultPlan(cluster, reached, announce).run())
    bars.update(writing, description="appending flights")
    return writing_task.result(), faults_task.result()


def _arguments(settings: DemoSettings, cluster: LocalCluster) -> list[WriterArguments]:
    return [
        WriterArguments(
            config=str(cluster.client_config),
            result=str(cluster.directory.path / f"writer-{number + 1}.json"),
            rows=settings.rows,
            number=number,
            writers=settings.writers,
            in_flight=settings.in_flight,
            deadline_seconds=settings.deadline_seconds,
        )
        for number in range(settings.writers)
    ]


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as bars:
        yield bars
