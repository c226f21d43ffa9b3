"""What the operator finds wrong with a specification is refused by the API server when it is applied, with
the same sentence; and what was stored before a rule existed can still be changed."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from operator_tests.api.admission_table import BAD, BAD_MIGRATIONS, GOOD, GOOD_MIGRATIONS, Bad
from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.installed import DEFINITION
from operator_tests.apiserver.test_definitions import API_VERSION, on_the_server, refusal, waltz_cluster
from operator_tests.resources.clusters import PLAIN, Spec, merged
from waltz_operator.api import admission
from waltz_operator.api.console import CONSOLE_IMAGE, CONSOLE_SECRET
from waltz_operator.api.crd import DEFINITIONS
from waltz_operator.api.topology import CLUSTER_JOB
from waltz_operator.kube.client import KubeClient
from waltz_operator.kube.kinds import WALTZ_CLUSTER, WALTZ_MIGRATION

RULES = "x-kubernetes-validations"


def migration(namespace: str, spec: Spec, name: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "WaltzMigration",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"cluster": "ledger", **spec},
    }


def test_server_and_operator_agree_on_every_row(plane: Plane) -> None:
    async def work(kube: KubeClient) -> None:
        wrong = []
        bodies = [
            (waltz_cluster("rows", merged(PLAIN, bad.changes), f"b{n}"), bad) for n, bad in enumerate(BAD)
        ]
        bodies += [(migration("rows", bad.changes, f"b{n}"), bad) for n, bad in enumerate(BAD_MIGRATIONS)]
        for body, bad in bodies:
            text = await refusal(kube, body)
            if bool(text) != bool(bad.refusal) or bad.refusal not in text:
                wrong.append((bad, text))
        taken = [waltz_cluster("rows", merged(PLAIN, good), f"g{n}") for n, good in enumerate(GOOD)]
        taken += [migration("rows", good, f"g{n}") for n, good in enumerate(GOOD_MIGRATIONS)]
        for body in taken:
            text = await refusal(kube, body)
            if text:
                wrong.append((Bad(body["spec"], "", ""), text))
        assert not wrong, "\n".join(
            f"{bad.changes}: wanted {bad.refusal!r}, got {text!r}" for bad, text in wrong
        )

    on_the_server(plane, "rows", work)


def without_rules(schema: Any) -> Any:
    """A schema as it was before there were rules: no CEL, no bounds, nothing declared in pod templates."""
    if isinstance(schema, list):
        return [without_rules(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {RULES, "maxItems", "maxLength", "pattern"}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        dropped |= {"properties"}
    return {name: without_rules(inner) for name, inner in schema.items() if name not in dropped}


@contextmanager
def _note(text: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(text)
        raise


async def _define(kube: KubeClient, definition: dict[str, Any]) -> None:
    name = definition["metadata"]["name"]
    found = await kube.get(DEFINITION, None, name)
    version = found["metadata"]["resourceVersion"]
    metadata = {**definition["metadata"], "resourceVersion": version}
    await kube._call("PUT", DEFINITION.path(None, name), None, {**definition, "metadata": metadata})


async def _until(kube: KubeClient, body: dict[str, Any], refused: bool) -> None:
    """Wait until the API server serves the definition that was put last."""
    for _ in range(200):
        if bool(await refusal(kube, copy.deepcopy(body))) == refused:
            return
        await asyncio.sleep(0.05)  # the API server reports by nothing else when it serves the new one
    raise TimeoutError("the definition is not served")


OF_THE_WHOLE = {
    one["message"]
    for one in (
        admission.EITHER_COPIES,
        admission.IMAGES,
        admission.ZOOKEEPER_TLS,
        admission.ZOOKEEPER_SECRET,
        CONSOLE_IMAGE,
        CONSOLE_SECRET,
    )
}
"""Rules of the whole specification, which are as old as the fields they are about: nothing that breaks them
was ever stored."""
RATCHETED = [bad for bad in BAD if bad.server is None and bad.refusal not in OF_THE_WHOLE]


@pytest.mark.long
def test_what_was_stored_before_a_rule_can_be_changed_elsewhere(plane: Plane) -> None:
    """Labels, the status and other fields; and a new mistake is refused in such an object too."""

    async def work(kube: KubeClient) -> None:
        ruled = DEFINITIONS["waltzclusters.waltz.dev.yaml"]()
        probe = waltz_cluster("old", merged(PLAIN, {"tls": {"mode": "Secret"}}), "probe")
        await _define(kube, without_rules(copy.deepcopy(ruled)))
        try:
            await _until(kube, probe, refused=False)
            for number, bad in enumerate(RATCHETED):
                assert not await refusal(kube, waltz_cluster("old", merged(PLAIN, bad.changes), f"o{number}"))
        finally:
            await _define(kube, ruled)
        await _until(kube, {**probe, "metadata": {**probe["metadata"], "name": "again"}}, refused=True)
        for number, bad in enumerate(RATCHETED):
            with _note(bad.line):
                found = await kube.get(WALTZ_CLUSTER, "old", f"o{number}")
                assert found is not None
                found["metadata"]["labels"] = {"seen": "yes"}
                assert not await refusal(kube, found, changed=True)
                found = await kube.get(WALTZ_CLUSTER, "old", f"o{number}")
                found["spec"] = merged(found["spec"], {"paused": True, "servers": {"replicas": 3}})
                assert not await refusal(kube, found, changed=True)
                path = WALTZ_CLUSTER.path("old", f"o{number}", "status")
                found = await kube.get(WALTZ_CLUSTER, "old", f"o{number}")
                await kube._call("PUT", path, None, {**found, "status": {"phase": "Ready"}})
                found = await kube.get(WALTZ_CLUSTER, "old", f"o{number}")
                found["spec"] = merged(
                    found["spec"], {"servers": {"podTemplate": {"spec": {"restartPolicy": "x"}}}}
                )
                assert await refusal(kube, found, changed=True)

    on_the_server(plane, "old", work)


def test_no_new_migration_has_the_name_of_the_clusters_own_copy_jobs(plane: Plane) -> None:
    """One that was made before the rule can be changed, and gets its finalizer and its status."""
    name = CLUSTER_JOB
    spec: Spec = {"rebalance": {"group": "1"}}

    async def work(kube: KubeClient) -> None:
        ruled = DEFINITIONS["waltzmigrations.waltz.dev.yaml"]()
        await _define(kube, without_rules(copy.deepcopy(ruled)))
        try:
            await _until(kube, migration("named", spec, name), refused=False)
        finally:
            await _define(kube, ruled)
        elsewhere = {"namespace": "default", "name": name}
        await _until(kube, {**migration("named", spec, name), "metadata": elsewhere}, refused=True)
        again = {**migration("named", spec, name), "metadata": elsewhere}
        assert "the name scale is the operator's own" in await refusal(kube, again)
        found = await kube.get(WALTZ_MIGRATION, "named", name)
        found["metadata"]["finalizers"] = ["waltz.dev/operator"]
        found["spec"]["cancel"] = True
        assert not await refusal(kube, found, changed=True)
        found = await kube.get(WALTZ_MIGRATION, "named", name)
        found["status"] = {"phase": "Cancelled"}
        await kube.replace(found, status=True)
        found = await kube.get(WALTZ_MIGRATION, "named", name)
        assert found["status"]["phase"] == "Cancelled"
        patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"], "finalizers": []}}
        await kube.merge_patch(WALTZ_MIGRATION, "named", name, patch)

    on_the_server(plane, "named", work)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_rules_are_bounded(name: str) -> None:
    """The API server refuses a definition whose rules could cost too much; all versions have the same."""
    versions = DEFINITIONS[name]()["spec"]["versions"]
    found = [str(version["schema"]).count(RULES) for version in versions]
    assert found[0] > 1
    assert len(set(found)) == 1
