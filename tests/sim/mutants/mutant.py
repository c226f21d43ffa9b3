"""What a planted bug is. Pure values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement in the text of a source file; `old` occurs there exactly once."""

    file: str
    """Relative to the repository."""
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug. More than one edit where a second guard would hide it: `guards` names what else was
    removed."""

    name: str
    rule: str
    """The rule of docs/safety.md, or the weakness, that it breaks."""
    edits: tuple[Edit, ...]
    expected: tuple[str, ...]
    """Invariants, any of which is expected to see it."""
    how: str
    """What has to happen for it to show."""
    guards: str = ""
    """What else the product has against the same mistake, removed as well."""
    profile: str = "default"
    """Kinds of faults whose seeds are tried: where few kinds can show it, their profile saves hundreds of
    seeds."""
    found_at: int | None = None
    """A seed that finds it (a hint: it changes whenever the simulator does)."""
