"""Carrying out a plan of which the API server rejects objects: all of a kind in one round, since a plan is
made anew after each, and a quota rejects the claims of every node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from waltz_operator.kube import kinds
from waltz_operator.model.actions import Action, ApplyObject, DeleteObject
from waltz_operator.model.snapshot import Rejection
from waltz_operator.run.apply import Outcome
from waltz_operator.run.observe import Observation

_WORKLOADS = frozenset({kinds.STATEFUL_SET.kind, kinds.DEPLOYMENT.kind, kinds.JOB.kind})
"""Their pods depend on other objects; objects of any other kind depend on none of their own kind."""

Rejected = tuple[ApplyObject | DeleteObject, str]
"""What was rejected, and why."""


async def apply_with_rejections(
    apply: Callable[[Sequence[Action], Observation], Awaitable[Outcome]],
    actions: Sequence[Action],
    observation: Observation,
    *,
    in_order: bool,
) -> tuple[Outcome, tuple[Rejected, ...]]:
    """Carry out the actions until one fails; after an object that is rejected, only the other objects of its
    kind. `in_order`: not even those. The outcome is that of the last one that failed."""
    outcome, left = await apply(actions, observation), list(actions)
    found: list[Rejected] = []
    while (rejected := outcome.rejected) is not None:
        found.append((rejected, outcome.error))
        left = left[left.index(rejected) + 1 :]
        left = [one for one in left if isinstance(one, ApplyObject) and one.key.kind == rejected.key.kind]
        if in_order or not left or rejected.key.kind in _WORKLOADS:
            break
        following = await apply(left, observation)
        done = (*outcome.done, *following.done)
        if following.failed is None:
            return replace(outcome, done=done), tuple(found)
        outcome = replace(following, done=done)
    return outcome, tuple(found)


def without(
    observation: Observation, action: ApplyObject | DeleteObject, error: str, *, for_good: bool = True
) -> Observation:
    """The same observation, with this object known to be rejected."""
    exists = isinstance(action, DeleteObject) or bool(
        action.uid or action.body["metadata"].get("resourceVersion")
    )
    known = observation.snapshot.rejected
    rejected = {**known, action.key: Rejection(f"{action.line}: {error}", exists, for_good)}
    return replace(observation, snapshot=replace(observation.snapshot, rejected=rejected))
