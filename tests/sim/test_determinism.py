"""One seed, one run: in the same process, and in processes whose sets and dicts of strings have another
order."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.cluster.world import Choice
from tests.sim.run import run_seed

SEEDS = (("default", 3), ("journal", 3), pytest.param("default", 9, marks=pytest.mark.long))
PROGRAM = (
    "import sys\n"
    "from tests.sim.cluster.world import Choice\n"
    "from tests.sim.run import run_seed\n"
    "print(run_seed(int(sys.argv[2]), Choice(profile=sys.argv[1])).digest)"
)


@pytest.mark.parametrize(("profile", "seed"), SEEDS)
def test_a_seed_runs_the_same_way_twice_in_a_process(profile: str, seed: int) -> None:
    first = run_seed(seed, Choice(profile=profile))
    run_seed(seed + 1, Choice(profile="calm"))  # what another world leaves behind changes nothing
    second = run_seed(seed, Choice(profile=profile))
    assert first.digest == second.digest
    assert (first.steps, first.virtual_seconds) == (second.steps, second.virtual_seconds)


@pytest.mark.parametrize(("profile", "seed"), SEEDS)
def test_a_seed_runs_the_same_way_whatever_the_hash_seed(profile: str, seed: int) -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, profile, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1] == run_seed(seed, Choice(profile=profile)).digest
