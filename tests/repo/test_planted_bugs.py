"""The planted bugs fit the code that they are planted in, and what is listed about generated ones is still
there.

Whoever changes the code sees here which of them have to follow.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tests.repo.files import ROOT
from tests.sim.mutants.catalogue import MUTANTS
from tests.sim.mutants.loader import PatchError, apply_edits, changed_sources, module_of
from tests.sim.mutants.mutant import Edit, Mutant
from tests.unit_mutants import survivors
from tests.unit_mutants.operators import generate
from tests.unit_mutants.planted.catalogue import ALL_BUGS, PLANTED
from tests.unit_mutants.run import SCOPE, generated_bugs, sample
from tests.unit_mutants.suites import missing_files, stages_of

LEAST = 150


@pytest.mark.parametrize("mutant", [*MUTANTS.values(), *ALL_BUGS], ids=lambda mutant: mutant.name)
def test_a_planted_bug_fits_the_source_and_changes_it(mutant: Mutant) -> None:
    for file, changed in changed_sources(mutant).items():
        source = (ROOT / file).read_text(encoding="utf-8")
        assert changed != source
        compile(changed, file, "exec")


def test_every_planted_bug_of_the_unit_tests_says_what_it_breaks() -> None:
    assert len(PLANTED) == len(ALL_BUGS) >= LEAST
    assert not set(PLANTED) & set(MUTANTS)
    for bug in ALL_BUGS:
        assert bug.rule, bug.name
        assert bug.how.endswith("."), bug.name
        assert all(module_of(edit.file) and stages_of(edit.file) for edit in bug.edits), bug.name


def test_no_two_planted_bugs_are_the_same() -> None:
    texts = [bug.edits for bug in (*MUTANTS.values(), *ALL_BUGS)]
    assert len(texts) == len(set(texts))


def test_an_edit_that_does_not_fit_is_an_error() -> None:
    """A catalogue that lags behind the code must not look like one whose bugs are not noticed."""
    for source in ("a = 1\n", "b = 1\nb = 1\n"):
        with pytest.raises(PatchError):
            apply_edits([Edit("f.py", "b = 1\n", "b = 2\n")], source)


def test_the_nearest_tests_exist() -> None:
    assert missing_files() == []


def test_survivors_are_argued_for_and_still_exist() -> None:
    """A survivor whose code has changed is a new bug, to be tried again."""
    listed = survivors.known()
    assert all(argument.endswith(".") for argument in listed.values())
    lost = set(listed) - {bug.key for bug in generated_bugs()}
    assert not sorted(lost)


def test_generated_bugs_are_distinct_and_compile() -> None:
    bugs = generated_bugs()
    assert len({bug.key for bug in bugs}) == len(bugs) > 1000
    assert {PurePosixPath(bug.file).parts[0] for bug in bugs} == {
        PurePosixPath(place).parts[0] for place in SCOPE
    }
    for bug in sample(bugs, "compiles", 200):
        source = (ROOT / bug.file).read_text(encoding="utf-8")
        assert bug.applied_to(source) != source
        compile(bug.applied_to(source), bug.key, "exec")


def test_a_sample_does_not_depend_on_where_the_code_stands() -> None:
    code = "def f(a, b):\n    if a < b and a:\n        g(a)\n        return True\n    return a + 1\n"
    here, there = (generate("m/src/f.py", text) for text in (code, f'"""Moved."""\n\nX = 1\n\n\n{code}'))
    assert [bug.key for bug in here] == [bug.key for bug in there]
    assert [bug.key for bug in sample(here, "s", 3)] == [bug.key for bug in sample(reversed(there), "s", 3)]


def test_what_the_operators_make() -> None:
    code = '''
class C:
    def f(self, a: int = 3) -> bool:
        """Left alone."""
        log.info("left alone %d", 7)
        if not a or a >= 10:
            raise ValueError(f"left alone {a + 1}")
        self.x = min(a, 2)
        return True
'''
    made = {bug.key.partition(" | C.f | ")[2] for bug in generate("m/src/c.py", code)}
    assert made == {
        "if not a or a >= 10 -> not (not a or a >= 10)",
        "not a or a >= 10 -> ((not a) and (a >= 10))",
        "not a or a >= 10 -> ((a >= 10))",
        "not a or a >= 10 -> ((not a))",
        "not a -> bool(a)",
        "a >= 10 -> (a > 10)",
        "10 -> 11 in if not a or a >= 10",
        "raise ValueError(f'left alone {a + 1}') -> pass",
        "self.x = min(a, 2) -> pass",
        "min(a, 2) -> max(a, 2)",
        "2 -> 3 in self.x = min(a, 2)",
        "True -> False in return True",
    }


def test_survivors_are_read_strictly() -> None:
    text = "# for the reader\na.py | f | x -> y\n    Because\n    of this.\n\nb.py | g | x -> y\n    Equal.\n"
    assert survivors.parse(text) == {"a.py | f | x -> y": "Because of this.", "b.py | g | x -> y": "Equal."}
    for wrong in (
        "    an argument without a bug\n",
        "a\n\na\n    Twice.\n",
        "a\n    Twice.\na\n    Twice.\n",
        "a\n",
    ):
        with pytest.raises(ValueError):
            survivors.parse(wrong)
