"""Writes that failed, and when they are tried again.

Objects whose write keeps failing although it may be tried again: each waits on a back-off of its own, and
the passes do without it meanwhile.

A step that is refused for good, as the deletion of a pod, ends the plan that it is of; migrations continue, a
pass a second. It waits on a back-off too, and ends the plans in between as it did when it was tried.

The API server answers HTTP 500 to a typing error in a pod template, however often it is asked, and the same
to a fault of its own: nothing distinguishes them but time. So the first failure ends the pass, as any write
whose outcome is not known; from the second one on only the object waits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from waltz_operator.model.actions import Action, ApplyObject, DeleteObject
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.run.apply import Outcome
from waltz_operator.run.observe import Observation

Key = tuple[str, str]
Apply = Callable[[Iterable[Action], Observation], Awaitable[Outcome]]

FIRST_WAIT_SECONDS = 2.0
MAX_WAIT_SECONDS = 60.0


class _Failure(NamedTuple):
    digest: str
    times: int
    until: float
    text: str


class _Refusal(NamedTuple):
    action: Action
    times: int
    until: float
    text: str


class FailedWrites:
    """One writer: the loop. Bounded by the objects of the clusters there are; `forget` when one is gone.
    Times are seconds (UNIX time)."""

    def __init__(self) -> None:
        self._failures: dict[Key, dict[ObjectKey, _Failure]] = {}
        self._refusals: dict[Key, _Refusal] = {}

    def failed(self, key: Key, action: ApplyObject | DeleteObject, text: str, now: float) -> bool:
        """Whether passes do without this write for a while: it has failed before, as it is."""
        of_cluster = self._failures.setdefault(key, {})
        digest = _digest(action)
        before = of_cluster.get(action.key)
        count = before.times + 1 if before is not None and before.digest == digest else 1
        wait = _wait_seconds(count - 1)
        of_cluster[action.key] = _Failure(digest, count, now + wait, text)
        return count > 1

    def done(self, key: Key, actions: Iterable[Action]) -> None:
        """These succeeded."""
        of_cluster = self._failures.get(key)
        if not of_cluster:
            return
        for action in actions:
            if isinstance(action, ApplyObject | DeleteObject):
                of_cluster.pop(action.key, None)

    def waiting(
        self, key: Key, actions: Iterable[Action], now: float
    ) -> list[tuple[ApplyObject | DeleteObject, str]]:
        """Of these writes the ones whose time has not come, with why they failed."""
        of_cluster = self._failures.get(key)
        if not of_cluster:
            return []
        found = []
        for action in actions:
            if not isinstance(action, ApplyObject | DeleteObject):
                continue
            last = of_cluster.get(action.key)
            if last is None or not 0 < last.until - now <= MAX_WAIT_SECONDS:
                continue
            if last.digest == _digest(action):  # another one may well succeed
                found.append((action, last.text))
        return found

    async def applied(
        self, key: Key, apply: Apply, actions: Iterable[Action], observation: Observation
    ) -> Outcome:
        """`apply`, but for a step that was refused, and whose time has not come."""
        now, wanted = observation.snapshot.now, list(actions)
        last = self._refusals.get(key)
        if last is not None and last.action in wanted and 0 < last.until - now <= MAX_WAIT_SECONDS:
            outcome = await apply(wanted[: wanted.index(last.action)], observation)
            return (
                outcome if outcome.failed else Outcome(outcome.done, last.action, last.text, retriable=False)
            )
        outcome = await apply(wanted, observation)
        refused = outcome.refused
        if refused is not None and not isinstance(refused, ApplyObject | DeleteObject):
            times = last.times + 1 if last is not None and last.action == refused else 1
            self._refusals[key] = _Refusal(refused, times, now + _wait_seconds(times), outcome.error)
        return outcome

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._failures.pop(key, None)
        self._refusals.pop(key, None)


def _wait_seconds(times: int) -> float:
    """After so many failures that count; 0 for none."""
    return min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(times - 1, 10)) if times > 0 else 0.0


def _digest(action: ApplyObject | DeleteObject) -> str:
    """Of what would be written. A Secret's contents are made anew for each attempt, so why it is
    written represents them."""
    body = action.body if isinstance(action, ApplyObject) else {"delete": action.uid}
    if isinstance(action, ApplyObject) and action.key.kind == "Secret":
        body = {**body, "data": action.reason}
    return hashlib.sha256(json.dumps(body, sort_keys=True, default=str).encode()).hexdigest()
