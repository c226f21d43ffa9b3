"""Which migrations of an observation need no write. People keep those that have ended, and anybody who may
make one may make many: so they cost next to nothing, and the rest never holds the event loop for long, on
which the Lease is renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import Protocol

from waltz_operator.api.metadata import FINALIZER
from waltz_operator.api.migration import WaltzMigration
from waltz_operator.model.actions import Plan
from waltz_operator.model.facts import Facts, facts_of
from waltz_operator.model.snapshot import Snapshot
from waltz_operator.model.task import reported_as_over


class Planner(Protocol):
    """The pure half. `facts`: those of the snapshot, where somebody has them."""

    def plan(self, snapshot: Snapshot) -> Plan: ...

    def plan_migration(
        self, name: str, snapshot: Snapshot, facts: Callable[[], Facts] | None = None
    ) -> Plan: ...


class RestingMigrations:
    """The migrations of one observation: the facts that their plans share are made once, at the first one
    that is planned."""

    def __init__(self, planner: Planner, snapshot: Snapshot) -> None:
        self._planner = planner
        self._snapshot = snapshot
        self._facts = cache(partial(facts_of, snapshot))

    async def wait_seconds(self, migration: WaltzMigration) -> float | None:
        """How long a migration may wait that by this observation needs no write: observations cost more than
        anything else. Infinite: it is over. None: it needs one, or is being made or deleted. Every other task
        of the loop has its turn before."""
        await asyncio.sleep(0)
        metadata = migration.metadata
        if FINALIZER not in metadata.finalizers or metadata.deleting:
            return None
        if reported_as_over(migration):
            return float("inf")
        plan = self._planner.plan_migration(metadata.name, self._snapshot, self._facts)
        return None if plan.actions else plan.requeue_seconds
