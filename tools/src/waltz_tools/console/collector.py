"""Observes the cluster for all viewers together, and only while there is one.

One task asks, everybody gets the same answer: a hundred open pages cost the cluster what one costs. Between
two observations it rests at least the interval, and `REST` times as long as the last one worked unless
findings would come late by that, `LEAST_REST` times at least. To wait for a process that does not answer is
no work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from waltz_admin.cluster_status import ClusterStatus
from waltz_admin.findings.finding import Finding
from waltz_admin.findings.rules import find
from waltz_admin.reports import LATENCY, AskReports, ServerReport
from waltz_tools.console.history import Change, Rates, changes, rates
from waltz_tools.console.reports import NOTHING_SINCE, Since, since

REST = 49
"""So the console takes a fiftieth of a core, where that much rest is no more than `PROMPT_SECONDS`."""
PROMPT_SECONDS = 4.0
"""A finding is on the screen within five seconds."""
LEAST_REST = 9
"""And never more than a tenth of a core, where that much rest is no more than `MAX_REST_SECONDS`."""
MAX_REST_SECONDS = 30.0
LINGER_SECONDS = 15.0
"""After the last question of a viewer."""
MAX_POINTS = 240
MAX_CHANGES = 500

_log = logging.getLogger(__name__)


def ending() -> bool:
    """Whether this task has been cancelled. A library may raise an error of its own in place of the
    cancellation, such as a connection that is closed while it is opened; it must not keep a task alive."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@dataclass(frozen=True, slots=True)
class Observation:
    """One state of the cluster. `at`: Unix time; `seconds`: how long it took to ask."""

    number: int
    at: float
    seconds: float
    status: ClusterStatus
    findings: tuple[Finding, ...]
    rates: Rates
    parts: int = 0
    """Of the reports that were asked for."""
    reports: tuple[ServerReport, ...] = ()
    since: Since = NOTHING_SINCE


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the history. `closed`: partitions without writes."""

    at: float
    appends_per_second: float
    closed: int
    p50_seconds: float | None = None
    p99_seconds: float | None = None


def rest_after(work_seconds: float) -> float:
    """Seconds of rest after an observation that took this much of the processor."""
    return max(min(REST * work_seconds, PROMPT_SECONDS), min(LEAST_REST * work_seconds, MAX_REST_SECONDS))


class Collector:
    """Owner of the observations: its task (`run`). `watch` keeps it awake, `changed` waits for something new.

    `number` grows with every observation and every failed attempt; `latest` stays what it was when one fails,
    and `error` says why.
    """

    def __init__(
        self,
        observe: Callable[[], Awaitable[ClusterStatus]],
        *,
        interval_seconds: float,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        work_clock: Callable[[], float],
        report: AskReports | None = None,
    ) -> None:
        """Clocks in seconds: `clock` never goes back, `wall_clock` is Unix time, `work_clock` counts the time
        of the processor that this process took."""
        self._observe = observe
        self._report = report
        self._parts_until: dict[int, float] = {}
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._wall_clock = wall_clock
        self._work_clock = work_clock
        self._until = float("-inf")
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()
        self._hurry = asyncio.Event()
        """Somebody waits for an observation: the rest ends."""
        self._taken = 0.0
        self._observing = False
        self.number = 0
        self.latest: Observation | None = None
        self.error = ""
        self.failing_since: float | None = None
        self.points: deque[Point] = deque(maxlen=MAX_POINTS)
        self.changes: deque[Change] = deque(maxlen=MAX_CHANGES)

    def watch(self, part: int = LATENCY) -> None:
        """Somebody watches now, and for a little while after this; `part` of the servers' reports too."""
        self._until = self._parts_until[part] = self._clock() + LINGER_SECONDS
        self._wanted.set()

    async def changed(self, number: int, timeout_seconds: float) -> bool:
        """Wait until there is something newer than `number`; False when the time is over."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.number <= number:
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def fresh(self, timeout_seconds: float, part: int = LATENCY) -> Observation | None:
        """An observation that is not from before nobody watched, nor from before somebody wanted this part;
        None when there is none in time."""
        idle = self._clock() > self._until
        before = self.number
        self.watch(part)
        if self.latest is None or idle:
            if not self._observing:
                self._hurry.set()
            await self.changed(before, timeout_seconds)
        lacks = self.latest is not None and not self.latest.parts & part
        if self._report is not None and lacks and part != LATENCY:  # which pages show when it comes
            self._hurry.set()
            before = self.number + self._observing  # one that has begun knows nothing of this part
            await self.changed(before, timeout_seconds)
        return self.latest

    async def run(self) -> None:
        """Observe while somebody watches, until cancelled."""
        while True:
            if self._clock() > self._until:
                self._wanted.clear()
                await self._wanted.wait()
            started, worked = self._clock(), self._work_clock()
            self._hurry.clear()  # who comes from now on may want what this observation does not ask for
            self._observing = True
            try:
                self._took(started, *await self._ask())
            except Exception as error:
                if ending():
                    raise asyncio.CancelledError from error
                self._failed(error)
            self._observing = False
            self._announce()
            work = self._work_clock() - worked
            await self._rest(max(self._interval_seconds, rest_after(work)))

    async def _ask(self) -> tuple[ClusterStatus, int, tuple[ServerReport, ...]]:
        """The state, and at the same time the reports of the servers that were there the last time."""
        now = self._clock()
        parts = sum(part for part, until in self._parts_until.items() if now <= until)
        known = () if self.latest is None else self.latest.status.servers
        servers = [(one.server_id, one.endpoint) for one in known if one.unreached is not None]
        if self._report is None or not servers:  # nobody to ask is an answer too, once a cluster was seen
            return await self._observe(), 0 if self.latest is None else parts, ()
        status, reports = await asyncio.gather(
            self._observe(), self._report(servers, parts), return_exceptions=True
        )
        if isinstance(status, BaseException):
            raise status
        if isinstance(reports, BaseException):
            _log.warning("no reports of the servers: %s", reports)
            return status, parts, ()
        return status, parts, tuple(reports)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return

    def _took(
        self, started: float, status: ClusterStatus, parts: int, reports: tuple[ServerReport, ...]
    ) -> None:
        """All is computed before anything is kept: whatever raises here leaves what was seen last."""
        now, at = self._clock(), self._wall_clock()
        before = None if self.latest is None else self.latest.status
        found = rates(before, status, now - self._taken)
        then = () if self.latest is None else self.latest.reports
        lately = since(then, reports, now - self._taken)
        number, findings = self.number + 1, tuple(find(status))
        closed = sum(p.closed for p in status.partitions)
        point = Point(at, found.total, closed, lately.p50_seconds, lately.p99_seconds)
        news = changes(before, status, at)
        self.latest = Observation(number, at, now - started, status, findings, found, parts, reports, lately)
        self.number, self._taken = number, now
        self.changes.extend(news)
        self.points.append(point)
        self.error, self.failing_since = "", None

    def _failed(self, error: Exception) -> None:
        """Whatever it is: the console lives on and shows it."""
        if not hasattr(error, "retriable") and not isinstance(error, (OSError, TimeoutError)):
            _log.exception("the cluster could not be observed")
        self.number += 1
        self.error = " ".join(str(error).split()) or type(error).__name__
        if self.failing_since is None:
            self.failing_since = self._wall_clock()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
