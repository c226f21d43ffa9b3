"""Runs targets one after another, each in a process of its own, and says what came out."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import file_name, stored
from tests.fuzz.shrink import shrunk
from tests.fuzz.target import NAMES, check_with_memory, load

ROOT = Path(__file__).parents[2]
# Time a process gets beyond its own limit: start, instrumentation, a last slow input.
GRACE_SECONDS = 90
# A longer input is replayed from a file.
MAX_COMMAND_BYTES = 200


class Report(NamedTuple):
    """What one target came to."""

    name: str
    executions: int
    per_second: int
    coverage_start: int
    coverage_end: int
    new_inputs: int
    findings: list[bytes]
    problem: str = ""

    def line(self) -> str:
        """One line of the table."""
        if self.problem:
            return f"{self.name:18} {self.problem}"
        gained = self.coverage_end - self.coverage_start
        return (
            f"{self.name:18} {self.executions:>9} executions {self.per_second:>7}/s  branches {self.coverage_start}"
            f" -> {self.coverage_end} (+{gained})  new inputs {self.new_inputs:>4}  findings {len(self.findings)}"
        )


def supported() -> bool:
    """True where `atheris` is installed (Linux x86-64)."""
    return importlib.util.find_spec("atheris") is not None


def run_all(names: Sequence[str], seconds: float, seed: int) -> int:
    """Share the time among the targets; the number of findings."""
    found = 0
    for name in names:
        report = run_one(name, max(1, round(seconds / len(names))), seed)
        print(report.line(), flush=True)
        found += len(report.findings) + bool(report.problem)
        for data in report.findings:
            tell(name, data)
    return found


def run_one(name: str, seconds: int, seed: int) -> Report:
    """Run one target guided by coverage, from the repository's corpus and the target's own seeds."""
    with tempfile.TemporaryDirectory(prefix=f"waltz-fuzz-{name}-") as place:
        corpus, findings = Path(place, "corpus"), Path(place, "findings")
        corpus.mkdir()
        findings.mkdir()
        for data in [*stored(name), *load(name).seeds()]:
            (corpus / file_name(data)).write_bytes(data)
        before = len(list(corpus.iterdir()))
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.worker",
            name,
            str(seconds),
            str(corpus),
            str(findings),
            str(seed),
        ]
        try:  # temporary files go where they are removed: libFuzzer ends its process without cleaning up
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": place},
                capture_output=True,
                timeout=seconds + GRACE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Report(name, 0, 0, 0, 0, 0, [], f"did not end within {seconds + GRACE_SECONDS} s")
        text = done.stderr.decode(errors="replace")
        found = [file.read_bytes() for file in sorted(findings.iterdir())]
        new_inputs = len(list(corpus.iterdir())) - before
    coverage = [int(n) for n in re.findall(r"\bcov: (\d+)", text)] or [0]
    executions = int(_first(r"stat::number_of_executed_units: +(\d+)", text))
    rate = int(_first(r"stat::average_exec_per_sec: +(\d+)", text))
    initial = re.search(r"INITED cov: (\d+)", text)
    start = int(initial[1]) if initial else coverage[0]
    problem = "" if done.returncode == 0 or found else f"ended with code {done.returncode}:\n{text[-2000:]}"
    return Report(name, executions, rate, start, coverage[-1], new_inputs, found, problem)


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else "0"


def tell(name: str, data: bytes) -> None:
    """What happened, the input as small as it gets, and the command that does it again."""
    small = shrunk(load(name), data)
    print(
        f"\nFOUND by {name}: {failure(name, small) or failure(name, data) or 'not seen when tried again (a hang?)'}"
    )
    print(f"input: {small.hex()}")
    kept = Path(tempfile.gettempdir(), f"waltz-fuzz-{name}-{file_name(small)}")
    kept.write_bytes(small)
    argument = small.hex() if len(small) <= MAX_COMMAND_BYTES else str(kept)
    print(
        f"again: {shlex.join([sys.executable, '-m', 'tests.fuzz', '--replay', name, argument])}\n", flush=True
    )


def failure(name: str, data: bytes) -> str:
    """The end of the traceback of one input, empty when all holds."""
    try:
        check_with_memory(load(name), data)
    except BaseException:
        return "".join(traceback.format_exc(limit=-6))
    return ""


def mutate(name: str, count: int, seed: int, stop_at: float = float("inf")) -> bytes | None:
    """`count` random changes of the corpus, without guidance; the first input that fails."""
    from tests.fuzz.mutation import mutated

    target = load(name)
    start = [*stored(name), *target.seeds()]
    rng = random.Random(f"{name}:{seed}")
    for _ in range(count):
        if time.monotonic() > stop_at:
            break
        data = mutated(rng.choice(start), start, rng, target.max_input_bytes)
        try:
            target.check(data)
        except Exception:
            return data
    return None


def clean(names: Sequence[str]) -> list[str]:
    """The names, checked."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise SystemExit(f"there is no target {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return list(names) or list(NAMES)
