"""Planted bugs in what the operator keeps of volumes. Those that the exploration of its planner has to find
are in `operator_tests.plan.exploration.mutants`."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_api = bugs_in("operator/src/waltz_operator/api")
_plan = bugs_in("operator/src/waltz_operator/plan")
_status = bugs_in("operator/src/waltz_operator/plan/status")
_model = bugs_in("operator/src/waltz_operator/model")
_resources = bugs_in("operator/src/waltz_operator/resources")
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
        "    if owned or going:  # the finalizer",
        "    if not kube:  # the finalizer",
        "A change of ownership that failed or was overwritten is not tried again: the volume goes.",
    ),
    _plan(
        "volumes_of_an_earlier_cluster_go_with_one_that_was_refused",
        "volumes",
        "teardown.py",
        "left = {name: claim for name, claim in found.items() if not of_another(facts, claim)}",
        "left = dict(found)",
        "A cluster that was refused, and never had a key, deletes the volumes of the one that had its name.",
    ),
    _plan(
        "second_look_lets_volumes_of_an_earlier_cluster_go",
        "volumes",
        "preconditions.py",
        "        if view is not None and of_another(facts, view):\n",
        "        if view is None:\n",
        "The last proof before a volume is deleted does not ask whose it is.",
    ),
    _plan(
        "mark_alone_proves_a_volume",
        "volumes",
        "kept_data.py",
        "    return view.created < facts.desired.created or not marked\n",
        "    return not marked\n",
        "The claims of an earlier ZooKeeper, which were taken over before its tree could be read, go.",
    ),
    _resources(
        "cluster_owns_its_claims",
        "volumes",
        "claims.py",
        "        owned=False,\n",
        '        owned=cluster.spec.reclaim_policy == "Delete",\n',
        "A foreground deletion after an edit to Retain that no pass applied takes all volumes along.",
    ),
    _plan(
        "claims_of_a_cluster_that_lives_stay_owned",
        "volumes",
        "kept_data.py",
        "    delete = facts.desired.deleting and facts.desired.reclaim_delete\n    found",
        "    delete = facts.desired.reclaim_delete\n    found",
        "A cluster that an earlier release made with Delete loses its volumes by a foreground deletion under Retain.",
    ),
    _plan(
        "claim_that_is_being_deleted_is_said_to_be_kept",
        "volumes",
        "kept_data.py",
        "and not view.deleting and (not delete",
        "and (not delete",
        "The log says that a volume is kept which is already on its way out.",
    ),
    _plan(
        "secrets_of_a_deleted_cluster_stay_with_delete",
        "volumes",
        "teardown.py",
        "    decision.actions.extend(going)\n",
        "    going = ()\n",
        "Credentials and copies of the records outlive every cluster.",
    ),
    # ---- volumes that are refused
    _plan(
        "a_refused_volume_is_no_part_of_the_specification",
        "volumes",
        "cluster.py",
        "    decision.unable += (*facts.flaws, *refused_volumes(rejected))\n",
        "    decision.unable += facts.flaws\n",
        "A size that a LimitRange refuses can never be lowered: the cluster can only be deleted.",
    ),
    _plan(
        "what_an_orphaning_deletion_released_stays",
        "operator",
        "kept_data.py",
        "if _has_lost_its_owner(key, view)),",
        "if not key.kind),",
        "The managed ZooKeeper, and the key of the authority, outlive a cluster that --cascade=orphan deleted.",
    ),
    _plan(
        "an_orphaning_deletion_is_not_waited_for",
        "operator",
        "teardown.py",
        "    if facts.desired.orphaning:\n",
        "    if facts.desired.orphaning and not kube:\n",
        "Kubernetes releases what was made the cluster's own a moment before, and it stays.",
    ),
    # ---- the phase
    _status(
        "a_cluster_that_answers_nobody_is_being_created",
        "operator",
        "conditions.py",
        'return "Degraded" if health.healthy or _has_run(facts) else "Creating"',
        'return "Degraded" if health.healthy or health.caught_up else "Creating"',
        "The phase of a cluster that has lost everybody is that of one which has never had anybody.",
    ),
    # ---- a namespace that goes as a whole
    _run(
        "credentials_go_before_the_tree",
        "operator",
        "observe.py",
        "        if not value and cluster.metadata.deleting:  # the end",
        "        if not value and not cluster.metadata.name:  # the end",
        "A namespace with a cluster in a ZooKeeper that asks for credentials is never deleted.",
    ),
    _status(
        "a_deletion_does_not_say_what_it_waits_for",
        "operator",
        "progressing.py",
        "        for first in decision.blocked[:1]:\n",
        "        for first in decision.blocked[:0]:\n",
        "Progressing says that the cluster is being deleted, and nobody knows of the annotation that helps.",
    ),
    # ---- the managed ZooKeeper
    _model(
        "leftover_claims_count_though_the_number_is_recorded",
        "ADR 17",
        "ensemble.py",
        "    return left and (desired.zookeeper_members or left)\n",
        "    return left\n",
        "With its StatefulSet deleted an ensemble of one becomes one of three, two of which have none of its data.",
    ),
    _model(
        "ensemble_grows_before_its_number_is_recorded",
        "ADR 17",
        "ensemble.py",
        "    return desired.zookeeper_members == present\n",
        "    return desired.zookeeper_members <= present\n",
        "The recorded number falls behind by two, and a StatefulSet that is made again by it forks the ensemble.",
    ),
    _api(
        "connect_string_has_the_servers_that_are_wanted",
        "ADR 17",
        "topology.py",
        "    present = cluster.status.zookeeper.members if members is None else members\n",
        "    present = members or 0\n",
        "With fewer copies wanted, the operator knows one server of three, and works on nothing while it is down.",
    ),
    # ---- volumes that go with their pod
    _plan(
        "restart_of_a_node_whose_volume_goes_with_its_pod",
        "volumes",
        "safety_gates.py",
        "    claim = dying(facts.kube, identity.claims)\n",
        '    claim = ""\n',
        "A claim that was deleted by mistake is kept by its pod, and the operator's own restart destroys the copy.",
    ),
    _plan(
        "stuck_pod_is_ended_whoever_needs_its_volume",
        "volumes",
        "safety_gates.py",
        "needed = _needed(facts, what, node) if does_nothing else",
        "needed = None if does_nothing else",
        "The only copy goes with a pod that a new template would have brought back.",
    ),
    _plan(
        "restart_of_a_zookeeper_server_whose_volume_goes_with_its_pod",
        "volumes",
        "safety_gates.py",
        '    claim = dying(kube, (f"data-{name}",))\n',
        '    claim = ""\n',
        "The restart of a single server destroys all records in ZooKeeper.",
    ),
    _model(
        "ensemble_grows_over_a_volume_that_goes_with_its_pod",
        "volumes",
        "ensemble.py",
        "is not None and claim.deleting)\n",
        "is not None and not claim)\n",
        "The second server waits for the first one, which may not be restarted: the ensemble stays half grown.",
    ),
    _model(
        "pod_that_keeps_a_volume_is_evicted",
        "volumes",
        "facts.py",
        "not dying_node and all_current(facts)",
        "all_current(facts)",
        "A drained machine takes the volume along that only its pod kept.",
    ),
    _run(
        "secrets_of_an_earlier_cluster_are_taken_over",
        "ownership",
        "observe.py",
        "    return belongs(secret, cluster.metadata) and not of_an_earlier_one(secret, cluster.metadata)\n",
        "    return belongs(secret, cluster.metadata)\n",
        "A cluster that was made again uses certificates that garbage collection takes away a moment later.",
    ),
    _run(
        "every_owner_is_removed",
        "volumes",
        "write_kubernetes.py",
        'wanted = [one for one in present if one.get("uid") != cluster.uid]',
        "wanted = [one for one in present if not cluster.uid]",
        "What somebody else has made an owner of a volume owns it no longer.",
    ),
    # ---- what another writer changed
    _plan(
        "a_quantity_is_compared_as_a_float",
        "operator",
        "diff.py",
        '    return ceil(min(Fraction(found["number"]) * factor, _LARGEST) * 1000)\n',
        '    return ceil(float(found["number"]) * float(factor)) * 1000\n',
        "A size of 10.3Gi is stored as thousandths and applied again in every pass: no migration ever runs.",
    ),
    _plan(
        "a_quantity_is_not_rounded_up",
        "operator",
        "diff.py",
        '    return ceil(min(Fraction(found["number"]) * factor, _LARGEST) * 1000)\n',
        '    return int(min(Fraction(found["number"]) * factor, _LARGEST) * 1000)\n',
        "A request of 0.1m CPU is stored as 1m and applied again in every pass.",
    ),
    # ---- changes of replicas
    _plan(
        "many_blocked_changes_hide_the_one_that_frees_them",
        "operator",
        "replica_changes.py",
        "            reported[move.kind] += 1\n",
        "            reported[move.kind] += 1\n            if reported[move.kind] >= MAX_REPORTED:\n                return\n",
        "With 64 partitions a dead group is never exchanged: each new copy waits until the dead one is given up.",
    ),
    _plan(
        "a_pod_that_goes_down_proves_a_change",
        "A6",
        "safety_gates.py",
        "    refusal = why_not_change(record, old, new, {**reasons, **ending}, allow_pause=allow_pause)\n",
        "    refusal = why_not_change(record, old, new, reasons, allow_pause=allow_pause)\n",
        "An edit of the image and of the number of copies leaves two copies, one of which is going down.",
    ),
    _plan(
        "a_change_is_taken_back_while_a_pod_restarts",
        "operator",
        "replica_changes.py",
        "    return isinstance(answer, Denied) and answer.blocked.reason != Reason.OTHER_NODE_DOWN\n",
        "    return isinstance(answer, Denied)\n",
        "A change under way is taken back, and begun again, because a pod restarts while a migration waits.",
    ),
    # ---- specifications that cut everybody off
    _api(
        "a_bare_address_needs_no_name_in_the_certificate",
        "operator",
        "validate.py",
        '        yield _problem("spec", admission.BARE_ADDRESS)._replace(stops=False)\n',
        "        return\n",
        "Servers advertise addresses that their certificates do not have, and nobody can connect.",
    ),
    _api(
        "a_bare_address_ends_all_work_on_a_cluster",
        "operator",
        "validate.py",
        '        yield _problem("spec", admission.BARE_ADDRESS)._replace(stops=False)\n',
        '        yield _problem("spec", admission.BARE_ADDRESS)\n',
        "An upgrade of the operator ends the repair of a cluster that serves who does not compare names.",
    ),
    # ---- drains that are kept
    _plan(
        "a_kept_drain_closes_every_later_node",
        "operator",
        "cordons.py",
        "return max(seconds(task.created), task.finished_at) >= _made_at(facts, facts.identity(task.source))",
        "return True",
        "A cluster that is made again under its name is never given its first copies.",
    ),
    # ---- where copies go
    _plan(
        "a_promised_copy_does_not_count",
        "operator",
        "placement.py",
        "            self._counts[node] += 1\n",
        "            self._counts[node] += 0\n",
        "All partitions of a new cluster go to the first node of each group.",
    ),
    _plan(
        "a_node_that_has_the_copy_is_lost_for_the_next_one",
        "operator",
        "placement.py",
        "                passed.append(entry)\n",
        "                passed = [entry]\n",
        "A node that has one of the partitions gets no copy of the others.",
    ),
    # ---- who reaches whom
    _resources(
        "servers_may_not_connect_to_what_they_advertise",
        "operator",
        "network.py",
        "    return [own] if on_machine is None else [own, _to([], on_machine)]\n",
        "    return [own]\n",
        "Servers on ports of their machines do not reach each other, so none hands a partition over, and none is watched.",
    ),
)
