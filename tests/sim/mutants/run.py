"""Looks for the first seed that finds each planted bug, and prints the table.

`python -m tests.sim.mutants [--only NAME ...] [--seeds N] [--from N] [--workers N] [--profile NAME]`

Each bug runs in a process of its own (`--child`), which plants it before anything of the product is
imported. A seed that fails with the bug is run without it as well: only if that run is clean, the bug was
found. The exit code is 1 when a bug survives all seeds or something else goes wrong.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from tests.sim.mutants.catalogue import MUTANTS
from tests.sim.mutants.loader import ROOT, PatchError, plant

DEFAULT_SEEDS = 500
CLEAN = "none"
"""Name of the unchanged code."""
NOT_THE_PRODUCT = frozenset({"harness"})
"""Invariants that say something about the simulator: a bug found by these alone was not found."""
MAX_DIRTY_SEEDS = 20
SEEDS_PER_PROCESS = 50
"""A seed leaves tens of megabytes behind in its process."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one planted bug. `seed` None: it survived, or `error` says what went wrong."""

    name: str
    seed: int | None
    invariant: str
    text: str
    seconds: float
    error: str = ""
    dirty: tuple[int, ...] = ()
    """Seeds that fail without the bug as well."""

    @property
    def ok(self) -> bool:
        """It was found."""
        return self.seed is not None and not self.error


# -- the process of one bug ----------------------------------------------------------------------------------


def child(name: str, first: int, end: int, profile: str) -> int:
    """Run seeds until one fails; one JSON line on standard output at the end."""
    finder = None
    if name != CLEAN:
        try:
            finder = plant(MUTANTS[name])
        except PatchError as error:
            return _say(error=str(error))
    try:
        from tests.sim.mutants.impatient import (
            Violation,
            first_violation,
        )  # only now: this imports the product
    except PatchError as error:
        return _say(error=str(error))
    if finder is not None and finder.missing:
        return _say(error=f"never imported: {', '.join(sorted(finder.missing))}")
    for seed in range(first, end):
        found: Violation | None = first_violation(seed, profile)
        if found is not None:
            return _say(seed=seed, invariant=found.invariant, text=found.text)
    return _say()


def _say(**what: object) -> int:
    print(json.dumps(what))
    return 0


# -- the process that starts them ----------------------------------------------------------------------------


def _ask(name: str, first: int, end: int, profile: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.sim.mutants.run", "--child", name]
    command += ["--from", str(first), "--seeds", str(end - first), "--profile", profile]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"error": f"exit code {done.returncode}: {done.stderr.strip()[-600:]}"}
    answer: dict[str, object] = json.loads(lines[-1])
    return answer


@functools.cache
def _is_clean(seed: int, profile: str) -> bool:
    """The unchanged code passes this seed."""
    return not _ask(CLEAN, seed, seed + 1, profile)


def look_for(name: str, first: int, end: int, profile: str) -> Found:
    """The first seed in `first` to `end` - 1 that fails with the bug and not without it."""
    started = time.monotonic()
    dirty: list[int] = []

    def found(seed: int | None = None, invariant: str = "", text: str = "", error: str = "") -> Found:
        return Found(name, seed, invariant, text, time.monotonic() - started, error, tuple(dirty))

    while True:
        stop = min(first + SEEDS_PER_PROCESS, end)
        answer = _ask(name, first, stop, profile)
        if "error" in answer:
            return found(error=str(answer["error"]))
        seed = answer.get("seed")
        if not isinstance(seed, int):
            if stop == end:
                return found()
            first = stop
            continue
        invariant = str(answer["invariant"])
        if invariant not in NOT_THE_PRODUCT and _is_clean(seed, profile):
            return found(seed, invariant, str(answer["text"]))
        dirty.append(seed)
        first = seed + 1
        if first >= end or len(dirty) > MAX_DIRTY_SEEDS:
            return found(error="" if first >= end else "too many seeds fail without it")


def line(one: Found) -> str:
    """A line of the table."""
    rule = MUTANTS[one.name].rule
    if one.error:
        seen = f"ERROR {one.error} | "
    elif one.seed is None:
        seen = "SURVIVED | "
    else:
        seen = f"{one.seed} | {one.invariant}"
    note = f" (not counted: {', '.join(map(str, one.dirty))})" if one.dirty else ""
    return f"| {one.name} | {rule} | {MUTANTS[one.name].profile} | {seen} | {one.seconds:.0f} |{note}"


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="SEED")
    parser.add_argument("--seeds", type=int, default=DEFAULT_SEEDS, help="how many seeds each may take")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--profile", help="instead of the profile each planted bug names")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    end = options.first + options.seeds
    if options.child is not None:
        return child(options.child, options.first, end, options.profile or "default")
    names = options.only or list(MUTANTS)
    unknown = [name for name in names if name not in MUTANTS]
    if unknown:
        parser.error(f"no such planted bug: {', '.join(unknown)}")
    found: dict[str, Found] = {}
    with ThreadPoolExecutor(options.workers) as pool:
        futures = [
            pool.submit(look_for, name, options.first, end, options.profile or MUTANTS[name].profile)
            for name in names
        ]
        for future in as_completed(futures):
            one = future.result()
            found[one.name] = one
            print(f"{len(found)}/{len(names)} {line(one)} {one.text[:160]}", file=sys.stderr, flush=True)
    print(
        "| planted bug | rule | faults | first seed | invariant | seconds |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name in names:
        print(line(found[name]))
    failures = sum(not one.ok for one in found.values())
    print(f"{len(names) - failures} of {len(names)} planted bugs found within {options.seeds} seeds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
