"""The planted bugs fit the code they are planted in, and a few of them are found at once.

All of them are looked for by ``make mutants``.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sim.mutants.catalogue import MUTANTS
from tests.sim.mutants.loader import ROOT, PatchError, apply_edits, module_of
from tests.sim.mutants.mutant import Edit, Mutant
from tests.sim.mutants.run import look_for

SMOKE = (
    "acknowledge_before_sync",
    "lost_zookeeper_session_keeps_serving",
    "foreign_request_id_taken_for_ones_own",
)
LEAST = 26


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_a_planted_bug_fits_the_source_and_changes_it(mutant: Mutant) -> None:
    """Whoever changes the code sees here which planted bugs have to follow."""
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for edit in mutant.edits:
        by_file[edit.file].append(edit)
    for file, edits in by_file.items():
        source = (ROOT / file).read_text(encoding="utf-8")
        changed = apply_edits(edits, source)
        assert changed != source
        compile(changed, file, "exec")


def test_every_planted_bug_says_what_it_is() -> None:
    """The catalogue is read by people."""
    assert len(MUTANTS) >= LEAST
    for mutant in MUTANTS.values():
        assert mutant.rule, mutant.name
        assert mutant.expected, mutant.name
        assert mutant.how.endswith("."), mutant.name
        assert all("/src/" in edit.file and module_of(edit.file) for edit in mutant.edits), mutant.name


def test_an_edit_that_does_not_fit_is_an_error() -> None:
    """A catalogue that lags behind the code must not look like one whose bugs are not found."""
    for source in ("a = 1\n", "b = 1\nb = 1\n"):
        with pytest.raises(PatchError):
            apply_edits([Edit("f.py", "b = 1\n", "b = 2\n")], source)


def test_some_planted_bugs_are_found_at_the_seeds_noted() -> None:
    """The machinery works, from the import to the invariant. A hint may be out of date: a few seeds more are allowed."""

    def find(name: str) -> str:
        seed = MUTANTS[name].found_at or 0
        found = look_for(name, seed, seed + 3, MUTANTS[name].profile)
        return "" if found.ok else f"{name}: {found}"

    with ThreadPoolExecutor(2) as pool:
        assert [problem for problem in pool.map(find, SMOKE) if problem] == []
