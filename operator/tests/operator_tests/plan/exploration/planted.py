"""The form of a planted bug."""

from __future__ import annotations

from typing import NamedTuple

OPERATOR = "operator/src/waltz_operator"


class Planted(NamedTuple):
    """`edits`: file, old text (there exactly once), new text. `scenario`: where it shows. `says`: part
    of what is found."""

    rule: str
    scenario: str
    edits: tuple[tuple[str, str, str], ...]
    says: str = ""
