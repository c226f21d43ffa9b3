"""The imports of the shipped packages, read from their text: also those for type checkers and inside
functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.repo.files import members


class Module(NamedTuple):
    """`imports`: every absolute name that is imported, of our modules and of others."""

    path: Path
    docstring: str
    imports: frozenset[str]


@cache
def modules() -> Mapping[str, Module]:
    """Every shipped module by its dotted name."""
    found = {}
    for member in members():
        source = member / "src"
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            tree = ast.parse(path.read_text())
            found[name] = Module(path, ast.get_docstring(tree) or "", frozenset(_imported(tree)))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def graph() -> Mapping[str, frozenset[str]]:
    """Our modules, each with those of ours that it imports. A package counts only when a name is taken from
    its own file."""
    ours = modules()
    edges = {}
    for name, module in ours.items():
        wanted = set()
        for one in module.imports:
            if one in ours:
                wanted.add(one)
        taken = {one.rpartition(".")[0] for one in module.imports if one in ours}
        names = {one.rpartition(".")[0] for one in module.imports if one not in ours}
        edges[name] = frozenset(one for one in wanted if one != name and (one in names or one not in taken))
    return edges


def cycles() -> set[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    edges = graph()
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = set()
            while True:
                component.add(last := stack.pop())
                if last == name:
                    break
            if len(component) > 1:
                found.add(frozenset(component))

    for name in edges:
        if name not in index:
            visit(name)
    return found


def reached(start: str) -> dict[str, str]:
    """Foreign top-level modules that a module imports, itself or through ours, each with the module that
    does."""
    edges, ours = graph(), modules()
    seen, waiting = {start}, [start]
    found: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        for one in ours[name].imports:
            top = one.partition(".")[0]
            if not top.startswith("waltz_"):
                found.setdefault(top, name)
        for other in edges[name] - seen:
            seen.add(other)
            waiting.append(other)
    return found
