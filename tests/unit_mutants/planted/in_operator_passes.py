"""Planted bugs in the operator: what one tenant, one object or one wrong clock does to everything else."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_run = bugs_in("operator/src/waltz_operator/run")
_plan = bugs_in("operator/src/waltz_operator/plan")
_tls = bugs_in("operator/src/waltz_operator/tls")
_api = bugs_in("operator/src/waltz_operator/api")
_authority = bugs_in("libs/admin/src/waltz_admin")
_resources = bugs_in("operator/src/waltz_operator/resources")
_model = bugs_in("operator/src/waltz_operator/model")

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
    # ---- a cluster that is adopted
    _plan(
        "a_paused_adoption_begins",
        "operator",
        "cluster.py",
        "    if decision.invalid is not None or facts.desired.paused:\n",
        "    if decision.invalid is not None:\n",
        "Servers start on a cluster of 0.13.2 before a person has read what the operator found.",
    ),
    # ---- name servers that are silent
    _run(
        "clusters_look_names_up_together",
        "operator",
        "names.py",
        "        return self._clusters.setdefault(key, ClusterNames())",
        '        return self._clusters.setdefault(key[:0] or ("", ""), ClusterNames())',
        "A silent name server of one tenant makes the nodes of all others Unknown.",
    ),
    _run(
        "slow_names_are_like_all_others",
        "operator",
        "names.py",
        "        if found.seconds <= SLOW_SECONDS:\n",
        "        if found.seconds >= 0:\n",
        "The nodes in a silent zone keep the other nodes of their cluster from being reached.",
    ),
    # ---- many rejections
    _model(
        "a_condition_has_every_rejection",
        "operator",
        "texts.py",
        '    return "; ".join(texts[:MAX_TEXTS]) + more',
        '    return "; ".join(texts) + more',
        "The status of a cluster with many rejected objects is longer than the API server takes.",
    ),
    _run(
        "a_plan_for_each_rejection",
        "operator",
        "rejections.py",
        "        if in_order or not left or",
        "        if not in_order or not left or",
        "A quota that refuses the volumes of 63 nodes has 63 plans made in each pass.",
    ),
    # ---- refused steps
    _run(
        "a_refused_restart_ends_the_pass",
        "operator",
        "reconcile.py",
        "        if result.error and applied.outcome.refused is not None:\n",
        "        if result.error and applied.outcome.rejected is not None:\n",
        "An admission rule that protects one pod keeps every migration of the cluster from being worked on.",
    ),
    _run(
        "a_deletion_ends_with_a_refused_step",
        "operator",
        "reconcile.py",
        " applied.plan.teardown_complete and applied.outcome.failed is None\n",
        " applied.plan.teardown_complete\n",
        "The finalizer goes, and with it the cluster, before what was to be kept is taken out of its ownership.",
    ),
    _run(
        "a_record_that_is_refused_ends_nothing",
        "operator",
        "apply.py",
        "        if self.retriable or isinstance(self.failed, SetStatus | SetFinalizer):\n",
        "        if self.retriable:\n",
        "Migrations are worked on although the status of the cluster cannot be written.",
    ),
    # ---- migrations of a cluster that is gone
    _run(
        "what_a_gone_cluster_has_left_is_not_looked_for",
        "operator",
        "process.py",
        "{*await self._clusters(namespace), *await self._clusters_left(namespace)}",
        "{*await self._clusters(namespace)}",
        "After one failed write a deleted migration holds its namespace until the operator is restarted.",
    ),
    _run(
        "a_migration_that_cannot_be_released_holds_the_others",
        "operator",
        "apply.py",
        "                problems.append(f\"WaltzMigration {body['metadata']['name']}: {one_line(failure)}\")\n",
        "                return one_line(failure)\n",
        "The first migration that a guard protects keeps all others of a cluster that is gone.",
    ),
    _run(
        "a_migration_without_a_cluster_is_not_looked_for",
        "operator",
        "migrations_left.py",
        "        if to_release(body) or without_cluster(body, 0.0) is not None:\n",
        "        if to_release(body):\n",
        "After one failed write a migration with a wrong name of its cluster has no status.",
    ),
    _run(
        "a_migration_that_is_over_loses_its_status",
        "operator",
        "migrations_left.py",
        " is not None or phase in FINISHED_PHASES:\n",
        " is not None:\n",
        "What a migration came to is overwritten when its cluster is deleted.",
    ),
    # ---- figures
    _run(
        "a_certificate_that_is_gone_has_an_end",
        "operator",
        "metrics.py",
        "        _remove(self._expiry, key)\n        for role",
        "        for role",
        "A critical alert comes months after the console was switched off, until the operator is restarted.",
    ),
    _run(
        "a_cluster_of_another_installation_has_figures",
        "operator",
        "reconcile.py",
        "            self._metrics.unobserved(key, {})\n",
        "",
        "An alert about partitions that had no quorum when the cluster was handed over never ends.",
    ),
    _run(
        "an_unreadable_cluster_has_no_certificates",
        "operator",
        "renewals.py",
        "    return Renewals(ends, outcome.error)\n",
        "    return Renewals({}, outcome.error)\n",
        "No alert comes when the certificates of a cluster end whose specification cannot be read.",
    ),
    # ---- admission
    _plan(
        "what_a_webhook_changes_is_written_in_every_pass",
        "operator",
        "diff.py",
        "    return overrides(wanted.body, live.body) == known.fields",
        "    return overrides(wanted.body, live.body) == () != known.fields",
        "A policy that rewrites images keeps migrations and the rotation of authorities from ever beginning.",
    ),
    _run(
        "an_object_without_our_label_is_not_found",
        "operator",
        "overridden.py",
        "            found.append(body)\n",
        "            continue\n",
        "A policy that changes the label of Services has them written in every pass.",
    ),
    _plan(
        "a_pod_that_is_not_made_is_on_its_way",
        "operator",
        "status/stalled.py",
        "    return since is not None and facts.now - since >= POD_SECONDS",
        "    return since is not None and facts.now < since",
        "A storage node whose pod an admission rule refuses stays away, and no condition says why.",
    ),
    _model(
        "a_volume_grows_with_a_restart_alone",
        "operator",
        "snapshot.py",
        "now - self.resize_pending_since >= ONLINE_GROWTH_SECONDS",
        "now >= self.resize_pending_since",
        "Every storage node and server of ZooKeeper is restarted for a volume that grows under its pod.",
    ),
    _run(
        "the_record_of_an_evicted_server_is_a_server",
        "operator",
        "read_kubernetes.py",
        " for name, obj in pods.items() if not _replaced(obj)},",
        " for name, obj in pods.items()},",
        "One evicted server, and no upgrade is begun and no authority exchanged until somebody deletes its record.",
    ),
    _run(
        "a_copy_job_waits_for_an_injected_proxy",
        "operator",
        "read_kubernetes.py",
        "    return found if all(found) else []",
        "    return found if all(found) and not found else []",
        "A migration in a service mesh stays Running for good after its copy has ended.",
    ),
    _model(
        "an_external_node_that_leaves_is_no_role",
        "operator",
        "facts.py",
        "any(node.external for node in (*self.desired.nodes, *self.leaving))",
        "any(node.external for node in self.desired.nodes)",
        "ZooKeeper is closed to an external node whose partitions are still to be drained.",
    ),
    _model(
        "a_pinned_image_has_no_version",
        "operator",
        "versions.py",
        "    return version_of(pod.image) or version_of(pod.written_image)",
        "    return version_of(pod.image)",
        "On the way to an earlier release storage nodes are restarted before servers.",
    ),
    # ---- clocks that were ahead
    _plan(
        "a_copy_from_the_future_counts",
        "operator",
        "zookeeper_export.py",
        "    return max((at for at in made if at <= now), default=None)",
        "    return max(made, default=None)",
        "After an export with a wrong clock no other one is made for as long, and nothing says so.",
    ),
    _tls(
        "a_certificate_from_the_future_is_kept",
        "operator",
        "rotation.py",
        "        or certificates[role].info.not_before > now\n",
        "",
        "Certificates that were made with a wrong clock are valid for nobody, for months.",
    ),
    _plan(
        "a_clock_that_lost_its_time_renews_everything",
        "operator",
        "certificates.py",
        "    return _is_behind(cluster, now) and ",
        "    return now < 0 and ",
        "All certificates are replaced by such as have expired decades ago.",
    ),
    # ---- certificates
    _api(
        "an_address_is_wanted_as_it_is_written",
        "operator",
        "security.py",
        "    return str(found) if getattr",
        "    return name if getattr",
        "A certificate for 2001:DB8::1 is signed anew in every pass, and nothing else of the cluster is done.",
    ),
    _api(
        "a_name_is_not_checked_before_it_is_signed",
        "operator",
        "validate.py",
        "    if not all(_is_certificate_name(name) for name in tls.extra_names):\n",
        "    if not all(tls.extra_names):\n",
        "A name that no certificate can have ends every pass, and the status does not say so.",
    ),
    _authority(
        "a_name_that_cannot_be_signed_is_a_mistake_of_the_program",
        "operator",
        "authority.py",
        '        raise TlsMaterialError(f"{name!r} is neither',
        '        raise ValueError(f"{name!r} is neither',
        "The pass ends with a traceback in the log instead of a condition.",
    ),
    _tls(
        "a_wrong_specification_renews_nothing",
        "operator",
        "rotation.py",
        "    old = tuple(role for role, one in certificates.items() if due(one.info, now))\n",
        "    old = tuple(role for role, one in certificates.items() if now < one.info.not_before)\n",
        "A typing error that is left for 30 days ends in an outage of everything.",
    ),
    _run(
        "a_wrong_specification_signs_for_others",
        "operator",
        "renewals.py",
        "    if tls.get(",
        "    if tls is None and tls.get(",
        "Secrets that a person makes are overwritten while the specification cannot be read.",
    ),
    # ---- the status
    _plan(
        "two_nodes_have_one_name",
        "operator",
        "status/cluster.py",
        "        while name in taken:\n",
        "        while name not in taken and taken is None:\n",
        "The API server refuses the status, and every later one, when a pod takes the name of an external node.",
    ),
    _plan(
        "the_pod_loses_its_name_to_an_external_node",
        "operator",
        "status/cluster.py",
        "    for node in sorted(nodes, key=lambda one: one.external):\n",
        "    for node in nodes:\n",
        "A pod that leaves is taken for an external node, and its StatefulSet and volume for nobody's.",
    ),
    # ---- releases
    _model(
        "a_version_is_accepted_without_the_pods",
        "operator",
        "versions.py",
        "        return VersionPlan(accepted)\n",
        "        return VersionPlan(wanted)\n",
        "A cluster goes two releases at once when the pods cannot be read in the first pass of a version.",
    ),
    # ---- configuration
    _api(
        "a_number_is_a_text",
        "operator",
        "config_check.py",
        "    if not isinstance(value, str):\n",
        "    if isinstance(value, list):\n",
        "A cluster whose next restarted pod does not start is valid.",
    ),
    # ---- a deleted Lease
    _run(
        "a_deleted_lease_is_made_at_once",
        "operator",
        "lease.py",
        "            if self._seen is not None or not await self._unused():\n",
        "            if await self._unused() is None:\n",
        "After `kubectl delete lease` two operators write at the same time.",
    ),
    # ---- rolls of the servers
    _plan(
        "zookeeper_is_restarted_while_a_server_starts",
        "operator",
        "safety_gates.py",
        "pod.ready or pod.deleting or _starts(pod, now) for pod",
        "pod.ready or pod.deleting for pod",
        "An old server is stopped while nobody can take its partitions over, and its session has to run out.",
    ),
    _plan(
        "roll_that_stalls_holds_zookeeper_up",
        "operator",
        "safety_gates.py",
        "not kube.deployment.calm and not kube.deployment.stalls",
        "not kube.deployment.calm",
        "A server that a quota refuses waits for room that the restart of ZooKeeper would make, and it for the server.",
    ),
    _resources(
        "servers_of_a_roll_may_share_a_machine",
        "operator",
        "affinity.py",
        "    preferred.append({",
        "    preferred.count({",
        "Writes stop with the machine of both servers until it is back.",
    ),
    _run(
        "a_refused_step_is_tried_in_each_pass",
        "operator",
        "failed_writes.py",
        "        if last is not None and last.action in wanted and",
        "        if last is None and",
        "While a migration is in progress, the API server is asked each second for what it refuses.",
    ),
)
