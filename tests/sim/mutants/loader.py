"""Loads shipped modules with planted bugs: the text is replaced between the file and the compiler.

Nothing on the disk changes, no byte code is written. Must run before the modules are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.sim.mutants.mutant import Edit, Mutant

ROOT = Path(__file__).resolve().parents[3]


class PatchError(Exception):
    """An edit does not fit the source any more: the catalogue has to follow the code."""


def apply_edits(edits: Iterable[Edit], source: str) -> str:
    """The source with all replacements; PatchError unless each old text occurs exactly once."""
    for edit in edits:
        count = source.count(edit.old)
        if count != 1:
            raise PatchError(f"{edit.file}: {count} places instead of one for:\n{edit.old}")
        source = source.replace(edit.old, edit.new)
    return source


def module_of(file: str) -> str:
    """Name of the module in a source file of a member: what follows ``src``."""
    parts = Path(file).with_suffix("").parts
    inside = parts[parts.index("src") + 1 :]
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)


class _PatchedLoader(SourceFileLoader):
    """Compiles the changed text."""

    def __init__(self, name: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(name, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        source = apply_edits(self._edits, Path(path).read_text(encoding="utf-8"))
        code: CodeType = compile(source, path, "exec", dont_inherit=True)
        return code


class PatchFinder(MetaPathFinder):
    """Finds the modules that are to be changed, before anybody else does."""

    def __init__(self, mutant: Mutant) -> None:
        self._edits: dict[str, list[Edit]] = {}
        for edit in mutant.edits:
            self._edits.setdefault(module_of(edit.file), []).append(edit)
        self.loaded: set[str] = set()

    @property
    def missing(self) -> set[str]:
        """Modules that nobody has imported: the bug is not there."""
        return set(self._edits) - self.loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See the base class."""
        edits = self._edits.get(fullname)
        if edits is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        self.loaded.add(fullname)
        spec.loader = _PatchedLoader(fullname, spec.origin, edits)
        return spec


def plant(mutant: Mutant) -> PatchFinder:
    """Let everything that is imported from now on have the bug. PatchError when a module is loaded already."""
    for edit in mutant.edits:
        name = module_of(edit.file)
        if name in sys.modules:
            raise PatchError(f"{name} was imported before the bug could be planted")
    finder = PatchFinder(mutant)
    sys.meta_path.insert(0, finder)
    return finder
