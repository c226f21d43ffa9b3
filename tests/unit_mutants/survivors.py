"""The list of generated bugs that no unit test notices, and why that is right (`survivors.txt`). Pure.

A paragraph for each: the key of the bug on its first line, the argument on the lines after it, set off by
four spaces. Lines that begin with `#` are for the reader.
"""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("survivors.txt")


def parse(text: str) -> dict[str, str]:
    """Key -> argument. ValueError for a paragraph that is not one, or comes twice."""
    found: dict[str, str] = {}
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("    "):
            if not key:
                raise ValueError(f"line {number}: an argument without a bug")
            found[key] = f"{found[key]} {line.strip()}".strip()
            continue
        key = line.strip()
        if key in found:
            raise ValueError(f"line {number}: listed twice: {key}")
        found[key] = ""
    for key, argument in found.items():
        if not argument:
            raise ValueError(f"no argument for {key}")
    return found


def known() -> dict[str, str]:
    """What the tree says."""
    return parse(FILE.read_text(encoding="utf-8"))
