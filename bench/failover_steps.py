"""Where the time of a fail-over goes, by the log of a server that takes over.

Times are seconds after the process was killed: the assignment that is written, the first and the last
partition that this server gains, the first and the last store session that it opens. What is left to the
longest pause of a writer is the client's way to the new server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

_LINE = re.compile(r"^(?P<time>\d{4}-\d\d-\d\dT[\d:.]+)Z \[\w+ *\] (?P<event>.*)$")
_STEPS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("suspected", lambda event: event.startswith("peer is suspected")),
    ("assigned", lambda event: event.startswith(("assigned ", "evicted "))),
    ("gained", lambda event: event.startswith("partition gained")),
    ("opened", lambda event: event.startswith("partition open")),
)


def failover_steps(lines: Iterable[str], killed_at: float) -> dict[str, float]:
    """Step -> seconds after `killed_at` (seconds since the epoch); "gained" and "opened" of the first and of
    the last partition."""
    found: dict[str, list[float]] = {name: [] for name, _ in _STEPS}
    for line in lines:
        match = _LINE.match(line.rstrip())
        if match is None:
            continue
        after = datetime.fromisoformat(match["time"]).replace(tzinfo=UTC).timestamp() - killed_at
        for name, is_step in _STEPS:
            if after >= 0 and is_step(match["event"]):
                found[name].append(after)
    steps: dict[str, float] = {}
    for name, times in found.items():
        if times:
            steps[name if name in ("suspected", "assigned") else f"{name}, first"] = round(min(times), 3)
        if times and name in ("gained", "opened"):
            steps[f"{name}, last"] = round(max(times), 3)
    return steps
