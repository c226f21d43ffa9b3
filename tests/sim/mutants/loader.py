"""Loads shipped modules with planted bugs: the text is replaced between the file and the compiler.

Nothing on the disk changes, no byte code is written. Must run before the modules are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.sim.mutants.mutant import Edit, Mutant

ROOT = Path(__file__).resolve().parents[3]


class PatchError(Exception):
    """An edit does not fit the source any longer: the catalogue has to follow the code."""


def apply_edits(edits: Iterable[Edit], source: str) -> str:
    """The source with all replacements; PatchError unless each old text occurs exactly once."""
    for edit in edits:
        count = source.count(edit.old)
        if count != 1:
            raise PatchError(f"{edit.file}: {count} places instead of one for:\n{edit.old}")
        source = source.replace(edit.old, edit.new)
    return source


def changed_sources(mutant: Mutant) -> dict[str, str]:
    """File -> its text with the bug. PatchError when an edit does not fit."""
    by_file: dict[str, list[Edit]] = {}
    for edit in mutant.edits:
        by_file.setdefault(edit.file, []).append(edit)
    return {
        file: apply_edits(edits, (ROOT / file).read_text(encoding="utf-8")) for file, edits in by_file.items()
    }


def module_of(file: str) -> str:
    """Name of the module in a source file of a member: what follows `src`."""
    parts = Path(file).with_suffix("").parts
    inside = parts[parts.index("src") + 1 :]
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)


class _PatchedLoader(SourceFileLoader):
    """Compiles the changed text."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType | None:
        code: CodeType = compile(self._source, self.get_filename(fullname), "exec", dont_inherit=True)
        return code


class PatchFinder(MetaPathFinder):
    """Finds the modules that are to be changed, before anybody else does."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        """`sources`: module -> text."""
        self._sources = sources
        self.loaded: set[str] = set()

    @property
    def missing(self) -> set[str]:
        """Modules that nobody has imported: the bug is not there."""
        return set(self._sources) - self.loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See the base class."""
        source = self._sources.get(fullname)
        if source is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        self.loaded.add(fullname)
        spec.loader = _PatchedLoader(fullname, spec.origin, source)
        return spec


def plant(mutant: Mutant) -> PatchFinder:
    """Let everything that is imported from now on have the bug. PatchError when it does not fit, or is too
    late."""
    return plant_sources(changed_sources(mutant))


def plant_sources(sources: Mapping[str, str]) -> PatchFinder:
    """The same for files whose changed text is given. PatchError when one of their modules is loaded
    already."""
    modules = {module_of(file): source for file, source in sources.items()}
    for name in modules:
        if name in sys.modules:
            raise PatchError(f"{name} was imported before the bug could be planted")
    finder = PatchFinder(modules)
    sys.meta_path.insert(0, finder)
    return finder
