"""Steps between a request and its reply, which are taken whole or end the node."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")


class HasDefects(Protocol):
    """Whose steps are vital."""

    on_defect: Callable[[Exception], None]


S = TypeVar("S", bound=HasDefects)


def vital(step: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """A step after which others wait. What of it was done when something raises that nobody foresaw (no
    memory, no thread, a mistake in the code) is not known: `on_defect` ends the node, which finds out at its
    next start as after a kill."""

    @functools.wraps(step)
    def taken(self: S, /, *arguments: P.args, **named: P.kwargs) -> None:
        try:
            step(self, *arguments, **named)
        except Exception as error:
            self.on_defect(error)
            raise

    return taken


def leave_to_the_loop(error: Exception) -> None:
    """For tests and the simulator: who called the step hears of it."""
