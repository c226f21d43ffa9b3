"""Planted bugs in the operator: what one tenant, one object or one wrong clock does to everything else."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_run = bugs_in("operator/src/waltz_operator/run")

OPERATOR_PASS_BUGS = (
    # ---- many migrations
    _run(
        "migrations_that_are_over_are_planned",
        "operator",
        "resting_migrations.py",
        "        if reported_as_over(migration):\n",
        "        if reported_as_over(migration) and not metadata.name:\n",
        "Each migration that a tenant keeps costs a plan in every pass.",
    ),
    _run(
        "migrations_keep_the_loop",
        "operator",
        "resting_migrations.py",
        "        await asyncio.sleep(0)\n",
        "",
        "The plans of many migrations are made in one turn of the loop, and the Lease is not renewed.",
    ),
)
