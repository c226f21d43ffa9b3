"""Tries the bugs, and prints which test noticed each.

`python -m tests.unit_mutants [--only PART ...] [--planted | --generated] [--sample N] [--seed TEXT] [--all]
[--minutes M] [--workers N] [--nearest] [--list]`

All planted bugs, then a sample of the generated ones: those whose key has the smallest digests under the
seed, so that a sample stays the same while the code around it moves. It ends with 1 when a planted bug is not
noticed, when a generated one that `survivors.txt` does not argue for is not noticed, or when one could not
be tried. With `--all` the survivors listed that are noticed by now are named as well.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.sim.mutants.loader import ROOT, changed_sources
from tests.unit_mutants import survivors
from tests.unit_mutants.operators import Generated, generate
from tests.unit_mutants.planted.catalogue import PLANTED
from tests.unit_mutants.pool import Bug, Pool
from tests.unit_mutants.worker import Trial

SCOPE = (
    "services/server/src/waltz_server/store",
    "services/server/src/waltz_server/partition",
    "services/storage/src/waltz_storage/engine",
    "services/storage/src/waltz_storage/service/fence.py",
    "services/storage/src/waltz_storage/service/jobs.py",
    "client/src/waltz_client/_internal/append_window.py",
    "client/src/waltz_client/_internal/transaction_monitor.py",
    "libs/admin/src/waltz_admin/forget.py",
    "libs/admin/src/waltz_admin/safety.py",
    "libs/admin/src/waltz_admin/verify.py",
    "libs/cluster/src/waltz_cluster/replica_rules.py",
)
"""Where bugs are generated: the parts that hold the promises."""
LEFT_OUT = frozenset({"api.py", "metrics.py", "inspect.py", "segment_view.py", "errors.py"})
"""Values, figures, and what only tools use."""
SAMPLE = 100
SEED = "1"
MINUTES = 60.0


def generated_bugs() -> list[Generated]:
    """Every generated bug, file by file."""
    found: list[Generated] = []
    for place in SCOPE:
        path = ROOT / place
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        for file in files:
            if file.name not in LEFT_OUT:
                found += generate(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
    return found


def sample(bugs: Iterable[Generated], seed: str, count: int) -> list[Generated]:
    """`count` of them, chosen by what they are and not by where they are. Pure."""
    ordered = sorted(bugs, key=lambda bug: hashlib.sha256(f"{seed} {bug.key}".encode()).digest())
    return ordered[:count]


def as_bug(bug: Generated) -> Bug:
    """With the changed text."""
    return Bug(bug.key, {bug.file: bug.applied_to(Path(ROOT / bug.file).read_text(encoding="utf-8"))})


def line(bug: Bug, trial: Trial) -> str:
    """A line of the table."""
    if trial.error:
        return f"| {bug.name} | ERROR {trial.error} |"
    return f"| {bug.name} | {trial.by or 'SURVIVED'} |"


def try_all(pool: Pool, bugs: Sequence[Bug], minutes: float = float("inf")) -> list[tuple[Bug, Trial]]:
    """Those that were tried, in order; none is begun after so many minutes."""
    end = time.monotonic() + 60 * minutes
    done: list[tuple[Bug, Trial]] = []
    futures = pool.trials(bugs, lambda: time.monotonic() < end)
    for number, (bug, future) in enumerate(zip(bugs, futures, strict=True), 1):
        trial = future.result()
        if trial is not None:
            done.append((bug, trial))
            print(
                f"{number}/{len(bugs)} {line(bug, trial)} {trial.text[:120]!r}", file=sys.stderr, flush=True
            )
    return done


def run_planted(pool: Pool, only: Sequence[str]) -> int:
    """Prints the table; how many were not noticed."""
    bugs = [
        Bug(name, changed_sources(bug))
        for name, bug in PLANTED.items()
        if not only or any(part in name or part in bug.edits[0].file for part in only)
    ]
    done = try_all(pool, bugs)
    print("| planted bug | noticed by |\n| --- | --- |")
    for bug, trial in done:
        print(line(bug, trial))
    missed = sum(not trial.by for _, trial in done)
    print(f"{len(done) - missed} of {len(done)} planted bugs are noticed by unit tests")
    return missed


def run_generated(pool: Pool, chosen: list[Generated], total: int, minutes: float, everything: bool) -> int:
    """Prints the survivors; how many of them nobody has argued for."""
    argued = survivors.known()
    done = try_all(pool, [as_bug(bug) for bug in chosen], minutes)
    left = [(bug, trial) for bug, trial in done if not trial.by]
    new = [(bug, trial) for bug, trial in left if trial.error or bug.name not in argued]
    for bug, trial in new:
        print(f"not noticed, and not argued for: {line(bug, trial)}")
    if everything:
        for bug, trial in done:
            if trial.by and bug.name in argued:
                print(f"noticed by now, take it from the list: {bug.name} ({trial.by})")
    print(
        f"{len(done) - len(left)} of {len(done)} generated bugs are noticed ({total} exist, {len(chosen)} were chosen); "
        f"{len(left) - len(new)} survivors are argued for, {len(new)} are not"
    )
    return len(new)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit_mutants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="of a name, key or file")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--planted", action="store_true", help="no generated bugs")
    kind.add_argument("--generated", action="store_true", help="no planted bugs")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many generated bugs")
    parser.add_argument("--seed", default=SEED, help="chooses the sample")
    parser.add_argument("--all", action="store_true", help="every generated bug, however long it takes")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="no generated bug is begun after this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nearest", action="store_true", help="only the nearest tests: a quick look")
    parser.add_argument("--list", action="store_true", help="print the generated bugs chosen, and end")
    options = parser.parse_args(arguments)
    bugs = generated_bugs()
    bugs = [bug for bug in bugs if not options.only or any(part in bug.key for part in options.only)]
    chosen = bugs if options.all else sample(bugs, options.seed, options.sample)
    if options.list:
        print("\n".join(bug.key for bug in chosen))
        return 0
    failures = 0
    with Pool(options.workers, nearest_only=options.nearest) as pool:
        if not options.generated:
            failures += run_planted(pool, options.only)
        if not options.planted:
            minutes = float("inf") if options.all else options.minutes
            failures += run_generated(pool, chosen, len(bugs), minutes, options.all)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
