"""`python -m tests.coverage`: line and branch coverage of the parts that hold the promises, by unit tests
and simulator.

Prints one line per package and every place that was not reached; ends with 1 when a package is below the
target. `--data FILE` reads a finished measurement instead of making one. `--seeds 0:20` sets how much is
simulated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("waltz_server.store", "waltz_server.partition", "waltz_storage.engine")
UNIT_TESTS = ("services/server", "services/storage")
TARGET_PERCENT = 95.0
TEST_TIMEOUT_SECONDS = 600  # being watched is slow


class Coverage(NamedTuple):
    """What was reached in one package."""

    name: str
    lines: int
    lines_reached: int
    branches: int
    branches_reached: int
    missing: list[str]

    @property
    def line_percent(self) -> float:
        return 100 * self.lines_reached / max(1, self.lines)

    @property
    def branch_percent(self) -> float:
        return 100 * self.branches_reached / max(1, self.branches)


def measure(data_file: Path, seeds: str) -> None:
    """Run the unit tests of both services and the simulator at the same time, each in a process of its
    own."""
    unit = [
        (folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_SECONDS}", folder)
        for folder in UNIT_TESTS
    ]
    simulated = ("simulator", "-m", "tests.coverage.simulated", seeds)
    running = [(name, _covered(data_file, *command)) for name, *command in [*unit, simulated]]
    for name, process in running:
        if process.wait():
            print(f"{name} failed: the figures below are of a run that failed", flush=True)
    coverage = [sys.executable, "-m", "coverage", "combine", "--quiet", f"--data-file={data_file}"]
    subprocess.run([*coverage, *map(str, data_file.parent.glob(f"{data_file.name}.*"))], cwd=ROOT, check=True)


def _covered(data_file: Path, *command: str) -> subprocess.Popen[bytes]:
    run = [sys.executable, "-m", "coverage", "run", "--parallel-mode", f"--data-file={data_file}", *command]
    return subprocess.Popen(run, cwd=ROOT)


def read(data_file: Path) -> list[Coverage]:
    """The figures per package."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "coverage.json")
        command = [
            sys.executable,
            "-m",
            "coverage",
            "json",
            "--quiet",
            f"--data-file={data_file}",
            "--fail-under=0",
        ]
        subprocess.run([*command, "-o", str(out)], cwd=ROOT, check=True)
        files: dict[str, Any] = json.loads(out.read_text())["files"]
    return [_package(name, files) for name in PACKAGES]


def _package(name: str, files: dict[str, Any]) -> Coverage:
    part = f"/{name.replace('.', '/')}/"
    found = {path: content for path, content in files.items() if part in path}
    totals = [content["summary"] for content in found.values()]
    missing = []
    for path, content in sorted(found.items()):
        lines, branches = content["missing_lines"], content["missing_branches"]
        arrows = [f"{a}->{'exit' if b < 0 else b}" for a, b in branches if a not in lines]
        if lines or arrows:
            missing.append(f"{path.rsplit('/src/')[-1]}: {', '.join([*map(str, lines), *arrows])}")
    return Coverage(
        name,
        sum(t["num_statements"] for t in totals),
        sum(t["covered_lines"] for t in totals),
        sum(t["num_branches"] for t in totals),
        sum(t["covered_branches"] for t in totals),
        missing,
    )


def main() -> int:
    """0 when every package reaches the target in lines and in branches."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", default="0:20")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waltz-coverage-") as place:
        data_file = options.data or Path(place, "data")
        if options.data is None:
            measure(data_file, options.seeds)
        packages = read(data_file)
    for package in packages:
        print(f"\n{package.name}: not reached (lines, and branches from->to)")
        print("\n".join(f"  {line}" for line in package.missing) or "  nothing")
    print()
    for package in packages:
        print(
            f"{package.name:24} lines {package.line_percent:6.2f} % of {package.lines:5}"
            f"   branches {package.branch_percent:6.2f} % of {package.branches:5}"
        )
    low = [p.name for p in packages if min(p.line_percent, p.branch_percent) < TARGET_PERCENT]
    if low:
        print(f"below {TARGET_PERCENT} %: {', '.join(low)}")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
