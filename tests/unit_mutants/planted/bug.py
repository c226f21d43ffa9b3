"""How a planted bug of the unit tests is written down: the same value as those of the simulator, usually one
replacement."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.mutants.mutant import Edit, Mutant


def bugs_in(folder: str) -> Callable[[str, str, str, str, str, str], Mutant]:
    """A function (name, rule, file, old text, new text, what it breaks) for the files of one folder."""

    def bug(name: str, rule: str, file: str, old: str, new: str, how: str) -> Mutant:
        return Mutant(name, rule, (Edit(f"{folder}/{file}", old, new),), (), how)

    return bug
