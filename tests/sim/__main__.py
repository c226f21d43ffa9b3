"""`python -m tests.sim`: many seeds, or one again. Exit code 1 when something was violated."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.sim.checkers.violation import gravest_first
from tests.sim.cluster.result import Result
from tests.sim.cluster.world import Choice
from tests.sim.faults.plan import PROFILES
from tests.sim.faults.shrink import shrink
from tests.sim.report import COVERAGE_SEEDS, Report, replay_command
from tests.sim.run import run_many, run_seed


def _seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    return range(int(first), int(end)) if colon else range(int(first))


def _numbers(text: str) -> frozenset[int]:
    return frozenset() if text == "none" else frozenset(int(number) for number in text.split(","))


def _names(text: str) -> frozenset[str]:
    return frozenset() if text == "none" else frozenset(text.split(","))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="The cluster in a simulator.")
    parser.add_argument(
        "--seeds", type=_seeds, default=range(300), help="FIRST:END (END is left out), or a number"
    )
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument(
        "--profile", choices=sorted(PROFILES), default="default", help="which kinds of faults"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="with --replay: write down what happens")
    parser.add_argument(
        "--shrink", action="store_true", help="with --replay: leave out what the failure does not need"
    )
    parser.add_argument("--only-faults", type=_numbers, metavar="N,N", help="only these faults of the plan")
    parser.add_argument("--only-workloads", type=_names, metavar="NAME,NAME", help="only these workloads")
    parser.add_argument("--stop", type=int, metavar="N", help="stop after so many failing seeds")
    return parser.parse_args(arguments)


def _show(result: Result) -> None:
    for violation in gravest_first(result.violations):
        print(f"VIOLATION {violation}")
    for fault in result.faults:
        print(fault)
    for name, count in sorted(result.counts.items()):
        print(f"    {name:<40s}{count:>9d}")
    print(
        f"seed {result.seed}: {len(result.violations)} violations, {sum(result.applied.values())} faults applied, "
        f"{sum(result.skipped.values())} skipped, {result.virtual_seconds:.0f} virtual seconds, {result.steps} steps, "
        f"{result.wall_seconds:.1f} s, trace {result.digest}"
    )


def _replay(seed: int, choice: Choice, trace: Path | None) -> Result:
    result = run_seed(seed, choice, trace)
    _show(result)
    return result


def _shrink(first: Result, choice: Choice) -> None:
    """Find a small set of faults and workloads that still violates what was violated first."""
    invariants = {violation.invariant for violation in first.violations}
    tries = 0

    def fails(candidate: Choice) -> bool:
        nonlocal tries
        tries += 1
        found = {violation.invariant for violation in run_seed(first.seed, candidate).violations}
        return bool(found & invariants)

    numbers = shrink(
        [fault.number for fault in first.faults],
        lambda kept: fails(replace(choice, faults=frozenset(kept))),
    )
    smaller = replace(choice, faults=frozenset(numbers))
    names = shrink(
        first.workloads,
        lambda kept: fails(replace(smaller, workloads=frozenset(kept))),
    )
    smallest = replace(smaller, workloads=frozenset(names))
    print(
        f"\nshrunk in {tries} runs to {len(numbers)} faults and the workloads {', '.join(names) or 'none'}:"
    )
    _show(run_seed(first.seed, smallest))
    print(replay_command(first.seed, smallest))


def _many(options: argparse.Namespace, choice: Choice) -> int:
    report = Report(choice)
    start = time.perf_counter()
    for result in run_many(options.seeds, choice, options.workers):
        report.add(result)
        if not result.ok:
            print(f"seed {result.seed}: {gravest_first(result.violations)[0]}"[:300], flush=True)
        if options.stop is not None and len(report.failed) >= options.stop:
            break
    if report.failed:
        print(report.failures())
    print(report.table(time.perf_counter() - start))
    if report.failed:
        return 1
    if report.seeds >= COVERAGE_SEEDS and report.missing_kinds():
        print(f"kinds of faults that never occurred: {', '.join(report.missing_kinds())}")
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = _arguments(arguments)
    choice = Choice(options.profile, options.only_faults, options.only_workloads)
    if options.replay is None:
        return _many(options, choice)
    result = _replay(options.replay, choice, options.trace)
    if options.shrink and not result.ok:
        _shrink(result, choice)
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
