"""The seeds of every test run. `make sim SEEDS=0:10000` runs as many as you like."""

from __future__ import annotations

import os
import sys
import time

from tests.sim.cluster.world import Choice
from tests.sim.faults.plan import KINDS, PROFILES
from tests.sim.report import Report
from tests.sim.run import run_many, run_seed

SEEDS = 300
WORKERS = max(1, min(2, os.cpu_count() or 1))


def test_seeds_of_the_default_profile_are_clean_and_every_kind_of_fault_occurs() -> None:
    report = Report(Choice())
    start = time.perf_counter()
    for result in run_many(range(SEEDS), report.choice, WORKERS):
        report.add(result)
    table = report.table(time.perf_counter() - start)
    print(table, file=sys.stderr)
    assert not report.failed, report.failures()
    assert report.missing_kinds() == [], table


def test_without_faults_nothing_fails_and_nobody_is_in_doubt() -> None:
    for seed in range(3):
        result = run_seed(seed, Choice(profile="calm"))
        assert result.ok, result.violations
        assert result.counts["appends committed"] > 0


def test_every_kind_of_fault_is_in_the_default_profile() -> None:
    assert set(PROFILES["default"]) == set(KINDS)
