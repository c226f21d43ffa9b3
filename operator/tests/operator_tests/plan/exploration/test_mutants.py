"""The exploration finds every bug that was planted for it; each in a process of its own.

Whether the bugs fit the planner's code is seen at once, so that whoever changes it learns which have to
follow.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.sim.mutants.loader import changed_sources

from .mutants import MUTANTS, ROOT, mutant


@pytest.mark.parametrize("name", MUTANTS)
def test_it_fits_the_source_and_changes_it(name: str) -> None:
    for file, changed in changed_sources(mutant(name)).items():
        assert changed != (ROOT / file).read_text(encoding="utf-8")
        compile(changed, file, "exec")


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_it_is_found(name: str, record_property: Callable[[str, object], None]) -> None:
    command = [sys.executable, "-m", "operator_tests.plan.exploration.mutants", name]
    ended = subprocess.run(
        command, cwd=ROOT / "operator/tests", capture_output=True, text=True, timeout=110, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found = ended.stdout.strip()
    assert found, "nothing was found"
    assert MUTANTS[name].says in found
    record_property("planted bugs of the planner found", 1)
