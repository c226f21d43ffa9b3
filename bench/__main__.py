"""`python -m bench`: run the benchmark and print every figure against its target."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.catch_up import measure_catch_up
from bench.checksum import measure_checksum
from bench.cluster import BenchCluster
from bench.compressed import measure_compressed
from bench.console import measure_console
from bench.console_process import measure_console_process
from bench.contention import measure_contention
from bench.curve import measure_curve
from bench.failover import measure_failover
from bench.fan_out import measure_fan_out
from bench.figures import Figure, medians, tls_name
from bench.hostile import measure_hostile
from bench.locks import measure_locks
from bench.metrics import measure_metrics
from bench.operator import measure_operator
from bench.plan import FULL, QUICK, Plan
from bench.plot import write_curves, write_plot
from bench.processes import BenchError
from bench.reading import measure_reading
from bench.report import print_table, write_json
from bench.spark import measure_spark
from bench.takeover import measure_takeover
from bench.upkeep import measure_memory, measure_start, measure_tasks
from bench.writing import measure_window, measure_writing
from waltz_tools.errors import LocalClusterError

RESULTS = Path(__file__).resolve().parent / "results"
PARTS = ("writing", "reading", "failover", "start", "memory", "tasks", "locks", "console", "spark")
ON_REQUEST = (
    "catch-up",
    "checksum",
    "compressed",
    "fan-out",
    "hostile",
    "window",
    "contention",
    "curve",
    "metrics",
    "operator",
    "takeover",
)
"""Measured only when named by `--only`."""
WITHOUT_CLUSTER = frozenset((*ON_REQUEST, "tasks", "locks", "console")) - {"window", "contention"}
"""They need no cluster, or make their own."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").strip())
    parser.add_argument("--quick", action="store_true", help="smoke run, less than a minute")
    parser.add_argument("--runs", type=int, help="whole measurements; figures are medians (default 1)")
    parser.add_argument("--seconds", type=float, help="length of one write measurement")
    parser.add_argument(
        "--only", choices=(*PARTS, *ON_REQUEST), action="append", help="measure only this (may be repeated)"
    )
    parser.add_argument(
        "--tls", choices=("on", "off", "both"), help="connections of all roles (default both)"
    )
    parser.add_argument("--directory", type=Path, help="where the data goes (default: temporary)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results.json and .png go")
    return parser.parse_args()


def make_plan(options: argparse.Namespace) -> Plan:
    """The plan that the options ask for."""
    plan = QUICK if options.quick else FULL
    if options.runs:
        plan = replace(plan, runs=options.runs)
    if options.seconds:
        plan = replace(plan, seconds=options.seconds)
    if options.tls:
        plan = replace(plan, tls_modes={"on": (True,), "off": (False,), "both": (False, True)}[options.tls])
    return plan


class Bench:
    """One invocation: which parts to measure, where, and what was measured so far."""

    def __init__(self, plan: Plan, parts: frozenset[str], directory: Path, console: Console) -> None:
        self._plan = plan
        self._parts = parts
        self._directory = directory
        self._console = console

    async def run(self) -> list[Figure]:
        """All runs; medians."""
        runs = []
        for number in range(1, self._plan.runs + 1):
            figures: list[Figure] = []
            for tls in self._plan.tls_modes:
                figures += await self._with_cluster(number, tls)
            if "tasks" in self._parts:
                with self._step("tasks and futures"):
                    figures += await measure_tasks(self._directory / f"tasks-{number}", self._plan)
            if "locks" in self._parts:
                with self._step("locks"):
                    figures += await measure_locks()
            if "checksum" in self._parts:
                with self._step("checksums"):
                    figures += measure_checksum()
            if "console" in self._parts:
                with self._step("console"):
                    figures += await measure_console()
                    figures += await measure_console_process(self._directory / f"console-{number}")
            if "metrics" in self._parts:
                with self._step("scrapes"):
                    figures += await measure_metrics(self._directory / f"metrics-{number}", self._plan)
            if "operator" in self._parts:
                with self._step("operator"):
                    figures += await measure_operator(self._plan)
            if "hostile" in self._parts:
                for tls in self._plan.tls_modes:
                    with self._step(f"hostile peers, {tls_name(tls)}"):
                        directory = self._directory / f"hostile-{number}-{tls_name(tls)}"
                        figures += await measure_hostile(directory, self._plan, tls)
            if "curve" in self._parts:
                for tls in self._plan.tls_modes:
                    with self._step(f"curve, {tls_name(tls)}"):
                        figures += await measure_curve(self._directory, self._plan, tls, f"curve-{number}")
            if "catch-up" in self._parts:
                for tls in self._plan.tls_modes:
                    with self._step(f"catching up, {tls_name(tls)}"):
                        directory = self._directory / f"catch-up-{number}-{tls_name(tls)}"
                        figures += await measure_catch_up(directory, self._plan, tls)
            if "compressed" in self._parts:
                for tls in self._plan.tls_modes:
                    with self._step(f"compressed blocks, {tls_name(tls)}"):
                        directory = self._directory / f"compressed-{number}-{tls_name(tls)}"
                        figures += await measure_compressed(directory, self._plan, tls)
            if "fan-out" in self._parts:
                for tls in self._plan.tls_modes:
                    with self._step(f"fan-out, {tls_name(tls)}"):
                        directory = self._directory / f"fan-out-{number}-{tls_name(tls)}"
                        figures += await measure_fan_out(directory, self._plan, tls)
            if "takeover" in self._parts:
                with self._step("takeover"):
                    directory = self._directory / f"takeover-{number}"
                    figures += await measure_takeover(directory, self._plan, self._plan.tls_modes[-1])
            runs.append(figures)
        return medians(runs)

    async def _with_cluster(self, number: int, tls: bool) -> list[Figure]:
        figures: list[Figure] = []
        if not self._parts - WITHOUT_CLUSTER:
            return figures
        directory = self._directory / f"run-{number}-{'tls' if tls else 'plain'}"
        async with BenchCluster.running(directory, self._plan, tls) as cluster:
            if "memory" in self._parts:
                figures += measure_memory(cluster)
            steps: tuple[tuple[str, Callable[[], Awaitable[list[Figure]]]], ...] = (
                ("writing", lambda: measure_writing(cluster, self._directory)),
                ("window", lambda: measure_window(cluster)),
                ("contention", lambda: measure_contention(cluster)),
                ("reading", lambda: measure_reading(cluster)),
                ("spark", lambda: measure_spark(cluster)),
                ("start", lambda: measure_start(cluster)),
                ("failover", lambda: measure_failover(cluster)),
            )
            for part, measure in steps:
                # starts and gaps do not depend on the cipher: measured with the default only
                if part in self._parts and (
                    tls or part in ("writing", "reading") or len(self._plan.tls_modes) == 1
                ):
                    with self._step(f"{part}, {tls_name(tls)}"):
                        figures += await measure()
        return figures

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        self._console.print(f"{name} …", end=" ")
        yield
        self._console.print(f"{time.monotonic() - started:.0f} s")


def main() -> int:
    options = parse_options()
    plan = make_plan(options)
    console = Console(stderr=False, width=None if sys.stdout.isatty() else 170)
    parts = frozenset(options.only or PARTS)
    with tempfile.TemporaryDirectory(prefix="waltz-bench-", dir=options.directory) as directory:
        try:
            figures = asyncio.run(Bench(plan, parts, Path(directory), console).run())
        except (BenchError, LocalClusterError) as failure:
            console.print(f"Error: {failure}", markup=False)
            return 1
    options.results.mkdir(parents=True, exist_ok=True)
    described = {"quick": options.quick, "runs": plan.runs, "seconds": plan.seconds, "parts": sorted(parts)}
    write_json(figures, options.results / "results.json", described)
    write_plot(figures, options.results / "results.png")
    write_curves(figures, options.results / "curves.png")
    print_table(figures, console)
    console.print(f"written: {options.results / 'results.json'}, {options.results / 'results.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
