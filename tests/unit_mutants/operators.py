"""Bugs that operators make of a source text: one small change each. Pure.

A bug is known by its file, the function it is in, the text before and after, and a number where the same text
occurs more than once in the function: never by a line number, so it stays the same while the code around it
moves.

Left out: annotations, docstrings, messages (f-strings, arguments of exceptions), logging and metrics, module
and class level.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_COMPARED = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_SIGNS = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_EXCHANGED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TALK = frozenset(
    {"log", "_log", "logging", "metrics", "_metrics", "note", "mark", "inc", "reason", "_reason", "report"}
)
"""Names that only say something: a statement that begins or ends with one is left alone."""


class Generated(NamedTuple):
    """One generated bug."""

    file: str
    function: str
    before: str
    after: str
    around: str
    """For a constant: the statement that it is in."""
    number: int
    start: int
    end: int
    """Bytes of the source that the text `after` represents."""

    def applied_to(self, source: str) -> str:
        """The changed text of the file it was made of."""
        raw = source.encode()
        return (raw[: self.start] + self.after.encode() + raw[self.end :]).decode()

    @property
    def key(self) -> str:
        """What it is known by, in one line."""
        where = f" in {self.around}" if self.around else ""
        again = f" (no. {self.number})" if self.number > 1 else ""
        return f"{self.file.partition('/src/')[2]} | {self.function} | {self.before} -> {self.after}{where}{again}"


class _Change(NamedTuple):
    node: ast.expr | ast.stmt
    before: str
    after: str
    """Replaces the text of the node."""
    around: str = ""


def generate(file: str, source: str) -> list[Generated]:
    """All bugs of a file, in the order of the text; no two with the same key."""
    tree = ast.parse(source)
    starts = _line_starts(source)
    found: list[Generated] = []
    seen: Counter[tuple[str, str, str, str]] = Counter()
    for function, node in _functions(tree):
        changes = sorted(_changes_of(node), key=lambda change: (change.node.lineno, change.node.col_offset))
        for change in changes:
            place = (function, change.before, change.after, change.around)
            seen[place] += 1
            found.append(Generated(file, *place, seen[place], *_span(starts, change.node)))
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods by qualified name; those inside others belong to the outer one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _changes_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Change]:
    for statement in function.body:
        yield from _changes_in(statement)


def _changes_in(node: ast.AST, around: str = "") -> Iterator[_Change]:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.stmt) and _only_talks(node)):
        return
    if isinstance(node, ast.stmt):
        around = _text(node).partition(": ")[0] if hasattr(node, "body") else _text(node)
        yield from _statement(node)
    if isinstance(node, ast.expr):
        yield from _expression(node, around)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "exc", "decorator_list", "args") and not isinstance(
            node, ast.Call
        ):
            continue
        if name == "slice" and isinstance(value, ast.Constant):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes_in(child, around)


def _only_talks(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    if isinstance(call, ast.Constant):
        return True  # a docstring
    if not isinstance(call, ast.Call):
        return False
    names = {part.attr for part in ast.walk(call.func) if isinstance(part, ast.Attribute)}
    names |= {part.id for part in ast.walk(call.func) if isinstance(part, ast.Name)}
    return bool(names & _TALK)


def _statement(node: ast.stmt) -> Iterator[_Change]:
    """Statements that are taken away, and conditions that are turned round."""
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
            yield _Change(node, _text(node), "pass")
        case ast.Assign(targets=targets) if all(
            isinstance(t, ast.Attribute | ast.Subscript) for t in targets
        ):
            if not any(isinstance(t, ast.Attribute) and t.attr in _TALK for t in targets):
                yield _Change(node, _text(node), "pass")
        case ast.Return(value=None):
            yield _Change(node, "return", "pass")
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare | ast.Constant):
            if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
                yield _Change(test, f"if {_text(test)}", f"not ({_text(test)})")


def _expression(node: ast.expr, around: str) -> Iterator[_Change]:
    """`around`: the text of the statement, which distinguishes constants."""
    before = _text(node)
    match node:
        case ast.Compare(left=left, ops=ops, comparators=right):
            sides = [_text(side) for side in (left, *right)]
            for place, changed in enumerate(ops):
                signs = [_SIGNS[type(op)] for op in ops]
                signs[place] = _COMPARED[type(changed)]
                after = sides[0] + "".join(f" {s} {x}" for s, x in zip(signs, sides[1:], strict=True))
                yield _Change(node, before, f"({after})")
        case ast.BoolOp(op=op, values=values):
            sign = " or " if isinstance(op, ast.And) else " and "
            yield _Change(node, before, "(" + sign.join(f"({_text(value)})" for value in values) + ")")
            for left_out in range(len(values)):
                rest = [f"({_text(value)})" for place, value in enumerate(values) if place != left_out]
                sign = " and " if isinstance(op, ast.And) else " or "
                yield _Change(node, before, "(" + sign.join(rest) + ")")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _Change(node, before, f"bool({_text(operand)})")
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = "-" if isinstance(op, ast.Add) else "+"
            yield _Change(node, before, f"({_text(left)} {sign} ({_text(right)}))")
        case ast.Constant(value=bool() as value):
            yield _Change(node, before, str(not value), around)
        case ast.Constant(value=int() as number):
            yield _Change(node, before, str(number + 1), around)
        case ast.Call(func=ast.Name(id=name)) if name in _EXCHANGED_CALLS:
            yield _Change(node, before, _EXCHANGED_CALLS[name] + before[len(name) :])


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _line_starts(source: str) -> list[int]:
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(starts: list[int], node: ast.expr | ast.stmt) -> tuple[int, int]:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column
