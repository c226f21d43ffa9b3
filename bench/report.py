"""What a benchmark run leaves: a table on the screen and `results.json` (the picture is in `plot`)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from bench.figures import Figure

_COLOURS = {"met": "green", "missed": "red"}


def print_table(figures: Sequence[Figure], console: Console) -> None:
    """One line per figure, grouped, with the target and whether it is met."""
    table = Table(title="Waltz benchmark", title_justify="left", header_style="bold")
    for column in ("figure", "load", "value", "target", "verdict", "note"):
        table.add_column(
            column, justify="right" if column in ("value", "target") else "left", overflow="fold"
        )
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            table.add_section()
            table.add_row(f"[bold]{group}[/bold]")
        verdict = figure.verdict
        colour = _COLOURS.get(verdict, "default")
        table.add_row(
            figure.name,
            figure.load,
            f"{number(figure.value)} {figure.unit}".rstrip(),
            str(figure.target or ""),
            f"[{colour}]{verdict}[/{colour}]"
            + (" (binding)" if figure.target and figure.target.binding else ""),
            _note(figure),
        )
    console.print(table)
    met = sum(figure.verdict == "met" for figure in figures)
    missed = sum(figure.verdict == "missed" for figure in figures)
    console.print(f"{met} met, {missed} missed")


def _note(figure: Figure) -> str:
    runs = f"runs: {' '.join(number(value) for value in figure.runs)}" if len(figure.runs) > 1 else ""
    return "; ".join(text for text in (figure.note, runs) if text)


def number(value: float) -> str:
    """Three significant digits or whole thousands."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def write_json(figures: Sequence[Figure], path: Path, options: dict[str, object]) -> None:
    """Every figure with its runs and details, and the machine it was measured on."""
    machine = {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    document = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "options": options,
        "figures": [figure.as_json() for figure in figures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
