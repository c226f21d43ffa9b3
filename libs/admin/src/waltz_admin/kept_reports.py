"""Reports of servers for those who ask again and again: over connections that stay open, and seldom of one
that has no such report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from waltz_admin.kept_connections import KeptConnections
from waltz_admin.reports import DOES_NOT_REPORT, ServerReport, ask_reports
from waltz_protocol.types import Endpoint

ASK_AGAIN_SECONDS = 600.0
"""A server that has no such report: it writes a line into its log for each question."""


class KeptReports:
    """Owner of what is known of servers without reports; the connections are the caller's."""

    def __init__(
        self, connections: KeptConnections, timeout_seconds: float, clock: Callable[[], float]
    ) -> None:
        """`clock`: seconds, never goes back."""
        self._connections = connections
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._silent: dict[int, float] = {}
        """Id of a server without such a report -> when it is asked again."""

    async def ask(self, servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        """What these servers report. One that has no such report is asked again after some minutes only, or
        under its next id: a server that was replaced has another one."""
        now = self._clock()
        self._silent = {one: until for one, until in self._silent.items() if until > now}
        asked = [one for one in servers if one[0] not in self._silent]
        found = await ask_reports(asked, parts, self._connections.to, timeout_seconds=self._timeout_seconds)
        known = {one.server_id for one in found}
        left = [ServerReport(one, at, DOES_NOT_REPORT) for one, at in servers if one not in known]
        self._silent |= {one.server_id: now + ASK_AGAIN_SECONDS for one in found if one.silent}
        return found + left
