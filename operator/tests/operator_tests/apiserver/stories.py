"""What a person does to a cluster, step by step, and what must be true after each step. Crash tests run them
with the operator killed on the way."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from operator_tests.apiserver import records
from operator_tests.apiserver.world import NAME, World
from waltz_admin.storage_admin import NodeStatus, list_nodes
from waltz_operator.kube import kinds
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.tls.secrets import secret_data
from waltz_protocol.aio.tls import TlsSettings


class Step(NamedTuple):
    """`act` changes something, the operator goes to its fixed point, `check` looks."""

    name: str
    act: Callable[[World], Awaitable[None]]
    check: Callable[[World], Awaitable[None]]


def spec(**more: Any) -> dict[str, Any]:
    """A small cluster: one partition, three copies, one server."""
    return {
        "images": {"server": "waltz-server:1", "storage": "waltz-storage:1"},
        "partitions": 1,
        "zookeeper": {"connectString": "zk:2181"},
        # a replica that could not be reached is asked again soon, not after up to 20 s
        "servers": {"replicas": 1, "config": {"storage.maxRetryInterval": 400}},
        **more,
    }


async def play(world: World, *steps: Step) -> None:
    """One step after the other; the cluster's key, once known, never changes, and nothing acknowledged is
    lost."""
    key: str | None = None
    for step in steps:
        await step.act(world)
        await world.settle()
        await step.check(world)
        if step.name.startswith("delete"):
            return
        found = (await world.cluster())["status"]["clusterKey"]
        require(key in (None, found), f"the key changed from {key} to {found}")
        key = found
        await records.check(world)
        await records.write(world, 3, 1)


def require(truth: bool, text: str) -> None:
    """An assertion that says what is wrong."""
    if not truth:
        raise AssertionError(text)


async def node_statuses(world: World) -> dict[str, NodeStatus]:
    """Every registered storage node, asked over its admin port with the operator's certificate."""
    files = TlsFiles()
    store = world.zookeeper.session(10.0)
    try:
        if await records.encrypted(world):
            secret = await world.kube.get(kinds.SECRET, world.namespace, f"{NAME}-tls-operator")
            tls = files.settings((world.namespace, NAME), secret_data(secret))
        else:
            tls = TlsSettings(enabled=False)
        if tls is None:
            raise AssertionError("the operator's certificate is not complete")
        found = await list_nodes(store, f"/waltz/{world.namespace}/{NAME}", tls)
    finally:
        await store.close()
        files.close()
    return {status.admin.host.split(".")[0]: status for status in found}


async def replicas_are(world: World, *nodes: str) -> None:
    """Exactly these nodes hold the partition, available and equal up to the same transaction."""
    statuses = await node_statuses(world)
    problems = {name: status.error for name, status in statuses.items() if status.error}
    require(not problems, f"silent nodes: {problems}")
    holding = {name: status.partitions for name, status in statuses.items() if status.partitions}
    require(set(holding) == set(nodes), f"held by {sorted(holding)}, not by {sorted(nodes)}")
    require(all(p.available for held in holding.values() for p in held), "a replica is not available")
    newest = {p.max_transaction_id for held in holding.values() for p in held}
    require(len(newest) == 1, f"replicas end at different transactions: {newest}")


def pods(*names: str) -> tuple[str, ...]:
    """<group>-<node> → the pod's name."""
    return tuple(f"{NAME}-storage-{name}-0" for name in names)


def holds(*nodes: str) -> Callable[[World], Awaitable[None]]:
    async def check(world: World) -> None:
        await replicas_are(world, *pods(*nodes))
        body = await world.cluster()
        conditions = {c["type"]: c["status"] for c in body["status"]["conditions"]}
        require(conditions["Available"] == "True", f"not available: {body['status']['conditions']}")
        sets = {one["metadata"]["name"] for one in await world.machinery.list(kinds.STATEFUL_SET)}
        wanted = {name.removesuffix("-0") for name in pods(*nodes)}
        require(wanted <= sets, f"StatefulSets {sorted(sets)} lack some of {sorted(wanted)}")

    return check


def install(**more: Any) -> Step:
    async def act(world: World) -> None:
        await world.create(spec(**more))

    groups = more.get("storage", {}).get("groups")
    nodes = (
        [f"{g['name']}-0" for g in groups]
        if groups
        else [f"{n + 1}-0" for n in range(more.get("replicas", 3))]
    )
    return Step("install", act, holds(*nodes))


def change(name: str, patch: Mapping[str, Any], *nodes: str) -> Step:
    async def act(world: World) -> None:
        await world.change(dict(patch))

    return Step(name, act, holds(*nodes))


def roll_storage() -> Step:
    """A new image: every storage pod is restarted once, with another one never down at the same time."""

    async def act(world: World) -> None:
        world.machinery.started.clear()
        await world.change({"images": {"storage": "waltz-storage:2"}})

    async def check(world: World) -> None:
        restarted = [name for name in world.machinery.started if "-storage-" in name]
        require(sorted(restarted) == sorted(pods("1-0", "2-0", "3-0")), f"restarted: {restarted}")
        await holds("1-0", "2-0", "3-0")(world)

    return Step("roll the storage image", act, check)


def roll_servers() -> Step:
    return change("roll the server image", {"images": {"server": "waltz-server:2"}}, "1-0", "2-0", "3-0")


def console(enabled: bool) -> Step:
    """Its pod is never ready here, which holds up nothing. Its token outlives it."""

    async def act(world: World) -> None:
        await world.change({"console": {"enabled": enabled}, "images": {"console": "waltz-tools:1"}})

    async def check(world: World) -> None:
        await holds("1-0", "2-0", "3-0")(world)
        for kind in (kinds.DEPLOYMENT, kinds.SERVICE, kinds.CONFIG_MAP, kinds.NETWORK_POLICY):
            there = f"{NAME}-console" in {one["metadata"]["name"] for one in await world.machinery.list(kind)}
            require(there == enabled, f"the console's {kind.kind}: {there}")
        secret = await world.kube.get(kinds.SECRET, world.namespace, f"{NAME}-console-token")
        require(len(secret_data(secret)["token"]) >= 32, "the token of the console is short")
        status = (await world.cluster())["status"].get("console")
        require((status or {}).get("ready") == (False if enabled else None), f"its status: {status}")

    return Step(f"console {'on' if enabled else 'off'}", act, check)


def rotate(*, from_days_ago: float) -> Step:
    """The operator's clock, which stood so many days ago until now, is right again: certificates and
    authority are due."""

    async def act(world: World) -> None:
        require(world.clock_offset == -from_days_ago * 86_400, "the world did not begin that long ago")
        before = await world.kube.get(kinds.SECRET, world.namespace, f"{NAME}-tls-ca")
        world.old_authority = secret_data(before)["tls.crt"]
        world.clock_offset = 0.0

    async def check(world: World) -> None:
        ca = secret_data(await world.kube.get(kinds.SECRET, world.namespace, f"{NAME}-tls-ca"))
        require(ca["tls.crt"] != world.old_authority, "the authority was not replaced")
        require(set(ca) == {"tls.crt", "tls.key"}, f"the rotation has not come to its end: {sorted(ca)}")
        for role in ("storage", "server", "operator", "zookeeper", "client"):
            data = secret_data(await world.kube.get(kinds.SECRET, world.namespace, f"{NAME}-tls-{role}"))
            require(data["ca.crt"] == ca["tls.crt"], f"{role} trusts something else")
            if role == "zookeeper":
                require(
                    data["tls-combined.pem"] == data["tls.key"] + data["tls.crt"], "ZooKeeper has another"
                )
        await holds("1-0", "2-0", "3-0")(world)

    return Step("rotate certificates and authority", act, check)


def drain() -> Step:
    """Node 1-0 is drained to 1-1 of the same group, by a copy Job."""

    async def act(world: World) -> None:
        await world.migrate("drain", drain={"node": "1-0"})

    async def check(world: World) -> None:
        body = await world.migration("drain")
        require(body["status"]["phase"] == "Completed", f"the migration: {body['status']}")
        await replicas_are(world, *pods("1-1", "2-0", "3-0"))

    return Step("drain a node", act, check)


def lose_disk() -> Step:
    """The disk of node 2-0 is lost; a person says that it is to be filled again."""

    async def act(world: World) -> None:
        claim, pod = f"data-{NAME}-storage-2-0-0", f"{NAME}-storage-2-0-0"
        await world.machinery.crash(pod)
        shutil.rmtree(world.directory / "claims" / claim)
        await world.machinery.settle()
        await world.migrate("refill", replace={"node": "2-0"})

    async def check(world: World) -> None:
        body = await world.migration("refill")
        require(body["status"]["phase"] == "Completed", f"the migration: {body['status']}")
        await replicas_are(world, *pods("1-1", "2-0", "3-0"))

    return Step("replace a lost disk", act, check)


def lose_journal() -> Step:
    """Node 2-0 is killed, and the volume of its journal is lost; a person says that it is to be filled
    again."""

    async def act(world: World) -> None:
        pod, claims = f"{NAME}-storage-2-0-0", world.directory / "claims"
        data, journal = claims / f"data-{pod}", claims / f"journal-{pod}"
        kept = world.directory / "killed"
        shutil.copytree(data, kept)  # what a kill leaves: the process below ends in order
        await world.machinery.crash(pod)
        shutil.rmtree(data)
        kept.rename(data)
        shutil.rmtree(journal)
        await world.machinery.settle()
        await world.migrate("refill", replace={"node": "2-0"})

    async def check(world: World) -> None:
        body = await world.migration("refill")
        require(body["status"]["phase"] == "Completed", f"the migration: {body['status']}")
        given_up = [line for line in world.journal.lines if line.startswith("give up")]
        require(len(given_up) >= 2, f"the volumes were not given up: {world.journal.lines}")
        await replicas_are(world, *pods("1-0", "2-0", "3-0"))

    return Step("replace a lost journal", act, check)


def delete(policy: str) -> Step:
    async def act(world: World) -> None:
        await world.delete()

    async def check(world: World) -> None:
        await world.machinery.settle()
        for kind in (
            kinds.STATEFUL_SET,
            kinds.DEPLOYMENT,
            kinds.POD,
            kinds.SECRET,
            kinds.SERVICE,
            kinds.CONFIG_MAP,
        ):
            left = [one["metadata"]["name"] for one in await world.machinery.list(kind)]
            require(not [name for name in left if name.startswith(NAME)], f"{kind.kind} left: {left}")
        claims = [one["metadata"]["name"] for one in await world.machinery.list(kinds.PVC)]
        root = await _exists(world)
        if policy == "Retain":
            require(bool(claims) and root, f"Retain kept claims {claims}, tree {root}")
        else:
            require(not claims and not root, f"Delete left claims {claims}, tree {root}")

    return Step(f"delete with policy {policy}", act, check)


def delete_managed() -> Step:
    """Of a cluster with a managed ZooKeeper, whose tree is on its volumes."""

    async def act(world: World) -> None:
        await world.delete()

    async def check(world: World) -> None:
        await world.machinery.settle()
        left = [one["metadata"]["name"] for one in await world.machinery.list(kinds.STATEFUL_SET)]
        require(not left, f"StatefulSets left: {left}")

    return Step("delete with policy Retain", act, check)


async def _exists(world: World) -> bool:
    store = world.zookeeper.session(10.0)
    try:
        return await store.exists(f"/waltz/{world.namespace}/{NAME}") is not None
    finally:
        await store.close()
