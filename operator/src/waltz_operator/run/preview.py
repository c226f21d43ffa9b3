"""`waltz-operator plan`: what the next pass over a cluster would do and what blocks it, as JSON. Nothing is
written.

With another specification: what it would do if that were the cluster's. Runs in the operator's pod, where
ZooKeeper and the admin ports can be reached; `waltz k8s plan` runs it there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from waltz_operator import settings
from waltz_operator.api.errors import ResourceError
from waltz_operator.api.parse import parse_cluster, status_body
from waltz_operator.api.validate import problem_lines
from waltz_operator.kube import config
from waltz_operator.kube.client import KubeClient
from waltz_operator.model.actions import Plan, SetStatus
from waltz_operator.model.facts import facts_of, render
from waltz_operator.model.snapshot import KubeView, Snapshot
from waltz_operator.plan.cluster import plan
from waltz_operator.plan.migration import plan_migration
from waltz_operator.plan.outstanding import outstanding
from waltz_operator.resources.images import NAMES, image_of
from waltz_operator.run.due_secrets import secret_steps
from waltz_operator.run.observe import Observation, Observer
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.run.zookeeper_sessions import CONNECT_TIMEOUT_SECONDS, Ensembles


async def run(options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Print the plan. KubeError, ResourceError: one line for a person."""
    kube = KubeClient(await config.load(options.kubeconfig))
    ensembles, tls_files = Ensembles(patience_seconds=CONNECT_TIMEOUT_SECONDS), TlsFiles()
    observer = Observer(
        kube,
        ensembles,
        tls_files,
        time.time,
        operator_namespace=settings.own_namespace(),
        images=settings.image_defaults(),
    )
    try:
        observation = await observer.observe(options.namespace, options.cluster)
    finally:
        await ensembles.close()
        tls_files.close()
        await kube.close()
    spec = _specification(options.spec) if options.spec else None
    print(json.dumps(preview(observation, spec)), flush=True)


def _specification(text: str) -> Mapping[str, Any]:
    try:
        spec = json.loads(text)
    except ValueError as error:
        raise ResourceError("spec", f"is not JSON: {error}") from None
    if not isinstance(spec, Mapping):
        raise ResourceError("spec", "must be an object")
    return spec


def preview(observation: Observation, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The next pass in words; with `spec` as if that were the specification. ResourceError."""
    snapshot = observation.snapshot
    if spec is not None:
        snapshot = with_specification(observation, spec)
    steps = secret_steps(replace(observation, snapshot=snapshot), settled=False)
    found = _in_words(plan(snapshot))
    if steps:
        found["actions"] = _lines(steps) + found["actions"]
    found["restarts"] = _restarts(snapshot)
    found["migrations"] = {
        one.metadata.name: _in_words(plan_migration(one.metadata.name, snapshot))
        for one in snapshot.migrations
    }
    return found


def _restarts(snapshot: Snapshot) -> list[dict[str, str]]:
    """What would be restarted for the specification, in its order, from which image to which."""
    facts = facts_of(snapshot)
    kube = facts.kube
    if facts.problems or facts.desired.deleting or not isinstance(kube, KubeView):
        return []
    images = {role: image_of(snapshot.cluster, snapshot.images, facts.version.target, role) for role in NAMES}
    return [
        {
            "pod": one.pod,
            "component": one.component,
            "from": kube.pods[one.pod].image,
            "to": images[one.component],
            "why": one.why,
            "waits": one.waits,
        }
        for one in outstanding(facts, kube, render(snapshot, facts))
    ]


def with_specification(observation: Observation, spec: Mapping[str, Any]) -> Snapshot:
    """The same look at the world, with another wish."""
    body = observation.body
    generation = int(body["metadata"].get("generation", 0)) + 1
    cluster = parse_cluster(
        {**body, "metadata": {**body["metadata"], "generation": generation}, "spec": spec}
    )
    found = problem_lines(cluster.spec)
    return replace(observation.snapshot, cluster=cluster, problems=found.stopping, flaws=found.others)


def _in_words(made: Plan) -> dict[str, Any]:
    return {
        "actions": _lines(action for action in made.actions if not isinstance(action, SetStatus)),
        "blocked": [
            {"what": one.what, "reason": one.reason, "text": one.text, "partition": one.partition}
            for one in made.blocked
        ],
        "status": status_body(made.status),
    }


def _lines(actions: Iterable[Any]) -> list[dict[str, Any]]:
    return [
        {"kind": type(action).__name__, "line": action.line, "destructive": action.destructive}
        for action in actions
    ]
