"""What a planner decided, before the status is written. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from waltz_operator.model.actions import Action, Blocked
from waltz_operator.model.desired import Memory, Move
from waltz_operator.model.outstanding import Outstanding
from waltz_operator.model.reasons import Reason

AT_ONCE = 0.1
"""Seconds until the next look when what was just written is all that the next step needs, and nothing else
would report it."""
BRIEFLY = 0.3
"""Seconds until the next look while servers take up a change of the assignments: a moment."""
SOON = 1.0
"""Seconds until the next look while something is under way."""
LATER = 30.0
"""Seconds until the next look while nothing is."""


@dataclass(slots=True)
class Decision:
    """Collected by the parts of the planner, in the order of the actions. `risky` is set by the part that
    takes the one step of this pass that changes assignments, takes a node down or deletes something; the
    others leave it alone then.

    `held`: the replica change under way is blocked. `invalid`: the resource or what it points at is wrong
    (type, text), nothing is written but the status. `step`: the step of the operation under way, for a
    person. `rejected`: writes that the API server does not take, a line each, with their reason;
    `unable`: parts of the specification that cannot be done (a line each). `overridden`: objects that are
    stored with other values than were written (a line each). `failed`: what ended the pass
    early, when this only reports it. `restarts`: what has to be restarted still, in the order in which it
    will be.
    """

    memory: Memory
    actions: list[Action] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    risky: bool = False
    held: bool = False
    invalid: tuple[Reason, str] | None = None
    waiting: tuple[Reason, str] | None = None
    step: str = ""
    message: str = ""
    requeue_seconds: float = LATER
    teardown_complete: bool = False
    rejected: tuple[Reason, str] | None = None
    unable: list[str] = field(default_factory=list)
    overridden: list[str] = field(default_factory=list)
    failed: tuple[Reason, str] | None = None
    restarts: Sequence[Outstanding] = ()

    def soon(self) -> None:
        """Look again soon."""
        self.requeue_seconds = min(self.requeue_seconds, SOON)

    def recorded(self, move: Move | None) -> None:
        """Record which replica change is under way (None: it is over). The next step only waits for that to
        be written."""
        self.memory = replace(self.memory, operation=move)
        self.requeue_seconds = AT_ONCE

    def take(self, *actions: Action) -> None:
        """The one risky step of this pass."""
        self.actions.extend(actions)
        self.risky = True
        self.soon()

    def block(self, blocked: Blocked) -> None:
        """Something is not done now."""
        self.blocked.append(blocked)
        self.soon()

    def wait(self, reason: Reason, text: str) -> None:
        """The first thing that is waited for."""
        if self.waiting is None:
            self.waiting = (reason, text)
        self.soon()
