"""The jobs are programs, not a package: their folder is where Python looks for them."""

import sys
from pathlib import Path

import pytest

JOBS = Path(__file__).resolve().parents[3] / "jobs"


@pytest.fixture(autouse=True)
def jobs_on_path(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(JOBS), *sys.path])
    return JOBS
