"""Planted bugs in what the operator keeps of volumes. Those that the exploration of its planner has to find
are in `operator_tests.plan.exploration.mutants`."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_plan = bugs_in("operator/src/waltz_operator/plan")
_run = bugs_in("operator/src/waltz_operator/run")

OPERATOR_BUGS = (
    # ---- the end of a cluster
    _plan(
        "retained_volumes_stay_owned_by_the_cluster",
        "volumes",
        "teardown.py",
        "    decision.actions.extend(owned)\n",
        "    owned = ()\n",
        "The policy was edited to Retain right before the deletion: garbage collection deletes every volume.",
    ),
    _plan(
        "finalizer_goes_before_it_is_seen_that_nothing_is_owned",
        "volumes",
        "teardown.py",
        "    if owned:  # the finalizer",
        "    if not kube:  # the finalizer",
        "A change of ownership that failed or was overwritten is not tried again: the volume goes.",
    ),
    _run(
        "every_owner_is_removed",
        "volumes",
        "write_kubernetes.py",
        'left = [one for one in present if one.get("uid") != cluster.uid]',
        "left = [one for one in present if not cluster.uid]",
        "What somebody else has made an owner of a volume owns it no longer.",
    ),
)
