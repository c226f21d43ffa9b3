"""How prose is written: docstrings, comments, and the paragraphs of documents are at most 110 columns wide,
in one dialect, and in the words of the glossary.

Text that is printed (string literals), tables, code blocks, and words longer than a line are free. In
documents a piece of code counts as a word: one that is broken over two lines is neither found nor copied.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.repo.files import ROOT, text_files, tracked_files

COLUMNS = 110
CODE = re.compile(r"`[^`]*`")


def too_wide(line: str) -> bool:
    """Beyond the columns, though it could be broken before them."""
    words = CODE.sub(lambda code: "x" * len(code[0]), line)
    return len(line) > COLUMNS and " " in words[:COLUMNS].strip()


@cache
def prose_of_python(path: Path) -> tuple[tuple[int, str], ...]:
    return tuple(_prose_of_python(path))


def _prose_of_python(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text()
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            block = " " * (node.col_offset + 4)
            for number in range(node.lineno, (node.end_lineno or 0) + 1):
                if not lines[number - 1].startswith(block):
                    yield number, lines[number - 1]
    if not any(line.lstrip().startswith("#") for line in lines):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            yield token.start[0], token.line.rstrip("\n")


def prose_of_document(path: Path) -> Iterator[tuple[int, str]]:
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ")):
            yield number, line


def test_prose_is_at_most_110_columns_wide() -> None:
    found = []
    for suffix, prose in ((".py", prose_of_python), (".md", prose_of_document)):
        for path in text_files(suffix):
            name = path.relative_to(ROOT)
            found += [f"{name}:{number}" for number, line in prose(path) if too_wide(line)]
    assert not found, "\n".join(["", *found])


def test_no_piece_of_code_in_a_document_is_broken_over_two_lines() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files(".md")
        for number, line in prose_of_document(path)
        if line.count("`") % 2
    ]


# Words of our own, and what is said instead, are listed in STYLE.md. Tests are free.
PRIVATE = re.compile(
    r"\b(?:told|tells?|telling|stands?|(?<!the )rest on|rest(?:s|ed|ing) on|any ?more|for ever|by our hand|is no wanted"
    r"|(?:goes|go|going|went|gone) on|patience|ladder|by hand|trouble|so many seconds)\b",
    re.IGNORECASE,
)


def shipped_prose(path: Path) -> bool:
    """Product source and its documents: no tests, no change log, and not the page that lists the words."""
    parts = path.relative_to(ROOT).parts
    if path.suffix not in (".py", ".md", ".yaml") or parts[-1] in ("CHANGELOG.md", "STYLE.md"):
        return False
    return "tests" not in parts and "requirements" not in parts


def test_no_private_words_in_what_is_shipped() -> None:
    assert not [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in filter(shipped_prose, tracked_files())
        for found in PRIVATE.finditer(" ".join(path.read_text().split()))
    ]


# Names of code are in single backticks, without roles of Sphinx; comments begin with "# ".
DIALECT = re.compile(r"(?<!`)``(?!`)[^`]|:(?:class|meth|func|mod|attr|data|exc):`|^\s*#: ", re.MULTILINE)


def test_docstrings_are_written_in_one_dialect() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files(".py")
        for number, line in prose_of_python(path)
        if DIALECT.search(line)
    ]
