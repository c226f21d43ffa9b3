"""The seeds of every test run: the same each time, so many that every kind of fault occurs. As many as you
like: `make sim SEEDS=0:10000`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.cluster.world import Choice
from tests.sim.faults.plan import ALL_KINDS, DETECTOR_KINDS, JOURNAL_KINDS, PROFILES
from tests.sim.run import run_seed

ROOT = Path(__file__).resolve().parents[2]

WORKERS = max(1, min(2, os.cpu_count() or 1))
FEW = [("default", "0:20"), ("outside", "0:8"), ("detector", "0:6")]
MANY = [
    ("default", "20:140"),
    ("outside", "8:28"),
    ("dense", "0:6"),
    ("journal", "0:20"),
    ("detector", "6:30"),
]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("profile", "seeds"), [*FEW, *(pytest.param(*one, marks=pytest.mark.long) for one in MANY)]
)
def test_seeds_are_clean(profile: str, seeds: str) -> None:
    """In a process of its own, as a person runs it: it ends with 1 for a violation, and, of so many seeds
    that every kind of fault has to occur among them (`COVERAGE_SEEDS`), for one that did not."""
    command = [
        sys.executable,
        "-m",
        "tests.sim",
        "--profile",
        profile,
        "--seeds",
        seeds,
        "--workers",
        str(WORKERS),
    ]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout, file=sys.stderr)
    assert done.returncode == 0, done.stdout[-3000:]


def test_without_faults_nothing_fails_and_nobody_is_in_doubt() -> None:
    for seed in range(3):
        result = run_seed(seed, Choice(profile="calm"))
        assert result.ok, result.violations
        assert result.counts["appends committed"] > 0


def test_every_kind_of_fault_is_in_the_default_profile() -> None:
    assert set(PROFILES["default"]) == set(ALL_KINDS) - set(JOURNAL_KINDS) - set(DETECTOR_KINDS)
    assert set(PROFILES["journal"]) == set(ALL_KINDS) - set(DETECTOR_KINDS)
