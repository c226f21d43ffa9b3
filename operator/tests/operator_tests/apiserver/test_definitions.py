"""The definitions and everything that is rendered, judged by a real API server: what it lets in, what it
refuses and why."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from itertools import permutations
from typing import Any

import pytest
import yaml

from operator_tests.apiserver.conftest import Plane
from operator_tests.apiserver.installed import NAMESPACE, ROOT, Administrator, post
from operator_tests.resources.clusters import CHANGES_REFUSED, INPUTS, PLAIN, VARIANTS, Spec, merged
from waltz_operator.api.parse import parse_cluster, parse_migration
from waltz_operator.kube.client import KubeClient
from waltz_operator.kube.errors import KubeError, KubeInvalidError
from waltz_operator.kube.kinds import EXTENSIONS, WALTZ_CLUSTER, WALTZ_MIGRATION, Kind, kind_of
from waltz_operator.resources import copy_job, desired_objects

API_VERSION = "waltz.dev/v1alpha1"
AUTOSCALER = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")


def on_the_server(plane: Plane, namespace: str, work: Callable[[KubeClient], Awaitable[None]]) -> None:
    """Run `work` with the rights of an administrator, in a fresh namespace."""

    async def main() -> None:
        admin = Administrator(plane.control.configuration())
        try:
            await post(
                admin, NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            )
            await work(admin)
        finally:
            await admin.close()

    with asyncio.Runner() as runner:
        runner.run(main())


def waltz_cluster(namespace: str, spec: Spec, name: str = "ledger") -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "WaltzCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


async def refusal(kube: KubeClient, body: dict[str, Any], *, changed: bool = False) -> str:
    """What the server says against creating (or replacing) the object; empty when it takes it."""
    try:
        await (kube.replace(body) if changed else kube.create(body))
    except KubeInvalidError as error:
        return str(error)
    return ""


def test_the_server_takes_every_example(plane: Plane) -> None:
    async def work(kube: KubeClient) -> None:
        for path in sorted((ROOT / "manifests/examples").glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text()):
                document["metadata"]["namespace"] = "examples"
                if document["kind"] == AUTOSCALER.kind:
                    made = await post(kube, AUTOSCALER, document)
                    assert made["spec"] == document["spec"] | {"behavior": made["spec"]["behavior"]}
                    continue
                kind = kind_of(document["apiVersion"], document["kind"])
                taken = await kube.create(document)
                if kind == WALTZ_CLUSTER:
                    # what the server has filled in changes nothing
                    assert parse_cluster(taken).spec == parse_cluster(document).spec
                elif kind == WALTZ_MIGRATION:
                    assert parse_migration(taken).spec == parse_migration(document).spec
                await kube.delete(
                    kind, "examples", document["metadata"]["name"], uid=taken["metadata"]["uid"]
                )

    on_the_server(plane, "examples", work)


def test_the_examples_of_one_cluster_are_taken_one_over_the_other(plane: Plane) -> None:
    """An example that changes the cluster of another one can be applied over it, and that one again."""
    clusters: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted((ROOT / "manifests/examples").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] == WALTZ_CLUSTER.kind:
                clusters.setdefault(document["metadata"]["name"], {})[path.name] = document
    assert {"ledger.yaml", "drain-node.yaml", "grow-groups.yaml", "grow-nodes.yaml"} <= {*clusters["ledger"]}

    async def work(kube: KubeClient) -> None:
        said = []
        for documents in clusters.values():
            for first, second in permutations(documents, 2):
                body = documents[first]
                body["metadata"]["namespace"] = "over"
                made = await kube.create(body)
                text = await refusal(kube, {**made, "spec": documents[second]["spec"]}, changed=True)
                said += [f"{second} over {first}: {text}"] if text else []
                await kube.delete(
                    WALTZ_CLUSTER, "over", made["metadata"]["name"], uid=made["metadata"]["uid"]
                )
        assert said == []

    on_the_server(plane, "over", work)


@pytest.mark.long
def test_the_server_takes_everything_that_is_rendered(plane: Plane) -> None:
    """Again and again: over what is there, with every field that the server has filled in."""

    async def work(kube: KubeClient) -> None:
        for number, (variant, changes) in enumerate(VARIANTS.items()):
            body = waltz_cluster("rendered", merged(PLAIN, changes), f"c{number}")
            made = parse_cluster(await kube.create(body))
            objects = [
                *desired_objects(made, INPUTS),
                copy_job(made, INPUTS, migration="m", partition=1, arguments=["copy-partition"]),
            ]
            extensions = {kind.kind for kind in EXTENSIONS}
            for obj in objects:
                if obj["kind"] in extensions:
                    continue
                await kube.apply(obj)
                second, third = await kube.apply(obj), await kube.apply(obj)  # a new claim takes two
                changed = second["metadata"]["resourceVersion"] != third["metadata"]["resourceVersion"]
                assert not changed, f"{variant}: {obj['kind']} {obj['metadata']['name']} changes every time"

    on_the_server(plane, "rendered", work)


def test_the_server_refuses_what_cannot_be(plane: Plane) -> None:
    """Each of these, and the field and reason it says."""

    async def work(kube: KubeClient) -> None:
        for spec, reason in REFUSED:
            text = await refusal(kube, waltz_cluster("refused", merged(PLAIN, spec)))
            assert reason in text, (spec, text)
        for name in ("1st", "with.dot", "x" * 31):
            assert "the name must have" in await refusal(kube, waltz_cluster("refused", PLAIN, name))
        for name, reason in (("m" * 64, "the name must have at most 63 characters"), ("m" * 63, "")):
            body = {
                "apiVersion": API_VERSION,
                "kind": "WaltzMigration",
                "metadata": {"name": name, "namespace": "refused"},
                "spec": {"cluster": "ledger", "drain": {"node": "1-0"}},
            }
            assert reason in await refusal(kube, body)
        for number, (migration, reason) in enumerate(REFUSED_MIGRATIONS):
            body = {
                "apiVersion": API_VERSION,
                "kind": "WaltzMigration",
                "metadata": {"name": f"m{number}", "namespace": "refused"},
                "spec": {"cluster": "ledger", **migration},
            }
            assert reason in await refusal(kube, body)

    on_the_server(plane, "refused", work)


def test_the_server_refuses_changes_of_what_is_fixed(plane: Plane) -> None:
    async def work(kube: KubeClient) -> None:
        for number, (before, after, reason) in enumerate(CHANGES_REFUSED):
            name = f"c{number}"
            made = await kube.create(waltz_cluster("fixed", merged(PLAIN, before), name))
            changed = copy.deepcopy(made)
            changed["spec"] = merged(merged(PLAIN, before), after)
            text = await refusal(kube, changed, changed=True)
            assert reason in text, (before, after, text)
        await kube.create(waltz_cluster("fixed", PLAIN, "said"))
        for tls in ({"mode": "SelfSigned"}, {"clientAuthentication": "None"}, None):
            # the default, said and left out; what is not fixed can be changed beside it
            found = await kube.get(WALTZ_CLUSTER, "fixed", "said")
            assert found is not None
            body = {**found, "spec": merged(PLAIN, {"tls": tls})}
            assert await refusal(kube, body, changed=True) == "", tls
        for acl in ("open", "creator", "open", None):  # credentials, in steps
            found = await kube.get(WALTZ_CLUSTER, "fixed", "said")
            assert found is not None
            auth = None if acl is None else {"secretName": "zk", "acl": acl}
            body = {**found, "spec": merged(PLAIN, {"zookeeper": {"auth": auth}})}
            assert await refusal(kube, body, changed=True) == "", acl
        body = {
            "apiVersion": API_VERSION,
            "kind": "WaltzMigration",
            "metadata": {"name": "m", "namespace": "fixed"},
            "spec": {"cluster": "ledger", "drain": {"node": "1-0"}, "cancel": True},
        }
        made = await kube.create(body)
        steps: tuple[tuple[Spec, str], ...] = (
            ({"cluster": "other"}, "the cluster of a migration is fixed"),
            ({"drain": {"node": "2-0"}}, "what a migration does is fixed"),
            ({"drain": None, "replace": {"node": "1-0"}}, "what a migration does is fixed"),
            ({"cancel": False}, "a migration that was cancelled cannot be resumed"),
        )
        for spec, reason in steps:
            changed = {**made, "spec": merged(made["spec"], spec)}
            assert reason in await refusal(kube, changed, changed=True), spec
        free: tuple[Spec, ...] = ({"approve": False}, {"rateLimitBytesPerSecond": 5}, {"dryRun": True})
        for spec in free:
            current = await kube.get(WALTZ_MIGRATION, "fixed", "m")
            assert current is not None
            assert await refusal(kube, {**current, "spec": merged(current["spec"], spec)}, changed=True) == ""

    on_the_server(plane, "fixed", work)


def journal_on(size: str) -> Spec:
    """A journal with volumes of its own."""
    return {"storage": {"journal": {"volume": {"size": size}}}}


def test_a_volume_of_the_journal_comes_and_never_goes(plane: Plane) -> None:
    """What is on it is needed after a kill, whatever the mode is then."""
    there = journal_on("1Gi")
    off = {"storage": {"journal": {"mode": "Disabled", "volume": {"size": "1Gi"}}}}
    slow = {"storage": {"journal": {"volume": {"size": "1Gi", "storageClassName": "slow"}}}}

    async def work(kube: KubeClient) -> None:
        shared: Spec = {"storage": {"journal": {}}}
        nothing: Spec = {}
        for name, before in (("none", nothing), ("shared", shared)):
            made = await kube.create(waltz_cluster("journals", merged(PLAIN, before), name))
            assert await refusal(kube, {**made, "spec": merged(PLAIN, there)}, changed=True) == ""
        made = await kube.create(waltz_cluster("journals", merged(PLAIN, there), "own"))
        for without in (nothing, shared):
            text = await refusal(kube, {**made, "spec": merged(PLAIN, without)}, changed=True)
            assert "cannot be taken away" in text
        text = await refusal(kube, {**made, "spec": merged(PLAIN, slow)}, changed=True)
        assert "storage class" in text
        assert await refusal(kube, {**made, "spec": merged(PLAIN, off)}, changed=True) == ""

    on_the_server(plane, "journals", work)


def test_a_size_that_was_refused_can_be_set_back(plane: Plane) -> None:
    """While the operator reports that it cannot be had; else a volume never shrinks."""
    sizes: tuple[tuple[str, Spec, Spec], ...] = (
        ("all", {}, {"storage": {"size": "20Gi"}}),
        ("group", groups({"name": "1", "size": "10Gi"}), groups({"name": "1", "size": "20Gi"})),
        ("journal", journal_on("1Gi"), journal_on("2Gi")),
    )

    async def work(kube: KubeClient) -> None:
        for name, small, large in sizes:
            before, after = merged(PLAIN, small), merged(PLAIN, large)
            made = await kube.create(waltz_cluster("doors", before, name))
            assert await refusal(kube, {**made, "spec": after}, changed=True) == ""

            async def back(name: str = name, before: Spec = before) -> str:
                found = await kube.get(WALTZ_CLUSTER, "doors", name)
                assert found is not None
                return await refusal(kube, {**found, "spec": before}, changed=True)

            assert "a volume cannot shrink" in await back()
            condition = {
                "type": "Valid",
                "status": "False",
                "reason": "RefusedChange",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            found = await kube.get(WALTZ_CLUSTER, "doors", name)
            path = WALTZ_CLUSTER.path("doors", name, "status")
            await kube._call("PUT", path, None, {**(found or {}), "status": {"conditions": [condition]}})
            assert await back() == ""

    on_the_server(plane, "doors", work)


def test_an_autoscaler_finds_the_cluster_that_its_example_names() -> None:
    """Its target has the scale subresource, and its container is in the pods that it scales."""
    (scaler,) = yaml.safe_load_all((ROOT / "manifests/examples/autoscale-servers.yaml").read_text())
    (ledger,) = yaml.safe_load_all((ROOT / "manifests/examples/ledger.yaml").read_text())
    ledger["metadata"]["namespace"] = "examples"
    target = scaler["spec"]["scaleTargetRef"]
    assert (target["apiVersion"], target["kind"]) == (WALTZ_CLUSTER.api_version, WALTZ_CLUSTER.kind)
    assert target["name"] == ledger["metadata"]["name"]
    assert scaler["spec"]["maxReplicas"] <= ledger["spec"]["partitions"]
    (metric,) = scaler["spec"]["metrics"]
    objects = desired_objects(parse_cluster(ledger), INPUTS)
    (servers,) = (one for one in objects if one["kind"] == "Deployment")
    names = {one["name"] for one in servers["spec"]["template"]["spec"]["containers"]}
    assert metric["containerResource"]["container"] in names


def test_status_is_the_operators_and_scale_sets_servers(plane: Plane) -> None:
    async def work(kube: KubeClient) -> None:
        made = await kube.create({**waltz_cluster("scaled", PLAIN), "status": {"phase": "Made up"}})
        assert "status" not in made
        path = WALTZ_CLUSTER.path("scaled", "ledger", "scale")
        scale = await kube._call("GET", path, None, None)
        assert scale["spec"]["replicas"] == 2
        await kube._call("PUT", path, None, {**scale, "spec": {"replicas": 4}})
        found = await kube.get(WALTZ_CLUSTER, "scaled", "ledger")
        assert parse_cluster(found).spec.servers.replicas == 4

    try:
        on_the_server(plane, "scaled", work)
    except KubeError as error:  # pragma: no cover - shows the line of the server
        raise AssertionError(str(error)) from error


def groups(*entries: Spec) -> Spec:
    return {"replicas": None, "storage": {"groups": list(entries)}}


OUTSIDE = {"name": "0", "external": True, "connectString": "h:1", "adminPort": 2}
REFUSED: list[tuple[Spec, str]] = [
    ({"partitions": 0}, "spec.partitions"),
    ({"replicas": 10}, "spec.replicas"),
    ({"images": {"zookeeper": None}}, "give version, or images.server, images.storage and, for a managed"),
    ({"images": {"storage": None}}, "give version, or images.server, images.storage"),
    ({"images": None}, "give version, or images.server, images.storage"),
    ({"version": "0.1"}, "spec.version"),
    ({"version": "v0.1.0"}, "spec.version"),
    ({"images": {"registry": "https://r.example.com/"}}, "spec.images.registry"),
    ({"restarts": {"window": {}}}, "spec.restarts.window.start"),
    ({"restarts": {"window": {"start": "24:00"}}}, "spec.restarts.window.start"),
    ({"zookeeper": {"connectString": "h:1"}}, "give connectString or managed, exactly one of them"),
    ({"zookeeper": {"managed": None}}, "give connectString or managed, exactly one of them"),
    ({"zookeeper": {"root": "waltz"}}, "spec.zookeeper.root"),
    ({"zookeeper": {"managed": {"replicas": 2}}}, "spec.zookeeper.managed.replicas"),
    ({"zookeeper": {"adoptKey": "key"}}, "spec.zookeeper.adoptKey"),
    ({"storage": {"groups": [{"name": "1"}]}}, "give replicas (that many groups"),
    ({"storage": {"size": "0"}}, "spec.storage.size"),
    (groups({"name": "1", "count": 1, "nodes": [{"name": "0"}]}), "give count or nodes, not both"),
    (groups({"name": "1"}, {"name": "1"}), "Duplicate value"),
    (groups({"name": "group-1"}), "spec.storage.groups[0].name"),
    (groups({"name": "1", "nodes": [{"name": "0", "adminPort": 2}]}), "belong to a node with external: true"),
    (
        groups({"name": "1", "nodes": [{**OUTSIDE, "adminPort": None}]}),
        "belong to a node with external: true",
    ),
    ({"tls": {"mode": "Secret"}}, "goes with mode Secret"),
    ({"tls": {"issuerRef": {"name": "i"}}}, "goes with mode CertManager"),
    ({"servers": {"drainSeconds": 1}}, "spec.servers.drainSeconds"),
]
REFUSED_MIGRATIONS: list[tuple[Spec, str]] = [
    ({}, "give exactly one of move, drain, replace, rebalance"),
    ({"drain": {"node": "1-0"}, "rebalance": {"group": "1"}}, "give exactly one of move"),
    ({"drain": {"node": "storage-1-0"}}, "spec.drain.node"),
    ({"move": {"from": "1-0", "to": "1-1", "partitions": [1, 1]}}, "Duplicate value"),
    ({"drain": {"node": "1-0"}, "rateLimitBytesPerSecond": -1}, "spec.rateLimitBytesPerSecond"),
]
