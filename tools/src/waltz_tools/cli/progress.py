"""Progress of long work, on standard error: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from waltz_runtime.visible import visible


class Advance(Protocol):
    """How far it is."""

    def __call__(self, done: float, total: float | None = None, text: str | None = None) -> None: ...


@contextmanager
def progress(text: str, total: float | None = None) -> Iterator[Advance]:
    """A bar from entry to exit; call what it gives with how much is done."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    task = bar.add_task(visible(text), total=total)

    def advance(done: float, total: float | None = None, text: str | None = None) -> None:
        if total is not None:
            bar.update(task, total=total)
        if text is not None:
            bar.update(task, description=visible(text))
        bar.update(task, completed=done)

    with bar:
        yield advance
