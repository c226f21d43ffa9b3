"""Kubernetes clusters whose pods have IPv6 addresses, alone or next to IPv4: install, writes, restarts. Each
is a cluster of its own, made for the scenario. Where the node image's pod network does not give such
addresses, or does not carry them, there is nothing to try, and the table says so."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.e2e import evidence, images, kind
from tests.e2e.kubectl import Kubectl
from tests.e2e.scenarios import rolling, start
from tests.e2e.world import CLUSTER, NAMESPACE, OPERATOR_NAMESPACE, SERVERS, STORAGE, World

WRITTEN_SECONDS = 5.0
NETWORK_SECONDS = 60.0
ZOOKEEPER = f"{CLUSTER}-zookeeper"
OWN = f"app.kubernetes.io/instance={CLUSTER}"


def ipv6(world: World) -> None:
    """No pod has an IPv4 address."""
    _try(world, "ipv6", {"IPv6"})


def dual(world: World) -> None:
    """Every pod has both."""
    _try(world, "dual", {"IPv4", "IPv6"})


def _try(world: World, family: str, wanted: set[str]) -> None:
    folder = Path(world.kubectl.kubeconfig).parent
    with kind.of_families(folder, family) as (kubeconfig, node):
        here = World(Kubectl(kubeconfig, NAMESPACE), node, journal=world.journal)
        here.notes = world.notes
        lack = _lack_of_network(here.kubectl, wanted)
        if lack is not None:
            world.notes.append(f"left out: {lack}")
            return
        names = [f"{name}:{images.TAG}" for name in images.SHIPPED if name != "waltz-tools"]
        kind.load([*names, images.WORKLOAD], name=f"{kind.NAME}-{family}")
        try:
            _install_and_restart(here, wanted)
        except Exception:
            evidence.keep(here.kubectl, [NAMESPACE, OPERATOR_NAMESPACE], folder / family)
            raise


def _lack_of_network(kubectl: Kubectl, wanted: set[str]) -> str | None:
    """What the pod network of the node image does not do, by the pods that every cluster has: those of its
    DNS server, which are ready when they reach the API server."""
    found: set[str] = set()
    until = time.monotonic() + NETWORK_SECONDS
    while time.monotonic() < until:
        for pod in kubectl.in_namespace("kube-system").list("pods", "k8s-app=kube-dns"):
            found = _families_of(pod)
            ready = any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in pod["status"].get("conditions", ())
            )
            if ready and found == wanted:
                return None
        time.sleep(1.0)
    given = ", ".join(sorted(found)) or "no"
    if found != wanted:
        return f"the node image gives pods {given} addresses"
    return f"pods with {given} addresses do not reach the API server on this node image"


def _families_of(pod: dict[str, Any]) -> set[str]:
    return {"IPv6" if ":" in one["ip"] else "IPv4" for one in pod["status"].get("podIPs", ())}


def _install_and_restart(world: World, wanted: set[str]) -> None:
    start.install(world)
    _check_families(world, wanted)
    world.load.begin_round(0.05)
    time.sleep(WRITTEN_SECONDS)
    rolling.restart_storage(world)
    rolling.restart_servers(world)
    world.load.wait_flowing()
    measured = world.load.measured()
    verdict = world.load.verdict("start")
    if not verdict["passed"]:
        raise AssertionError(f"the log is not what was acknowledged: {verdict}")
    world.notes.append(f"{measured.acknowledged} acknowledged, gap {measured.longest_gap_seconds:.2f} s")


def _check_families(world: World, wanted: set[str]) -> None:
    for service in world.kubectl.list("services", OWN):
        if ZOOKEEPER in service["metadata"]["name"]:
            continue  # has the first family; its pods listen on all
        found = set(service["spec"]["ipFamilies"])
        if found != wanted:
            raise AssertionError(f"Service {service['metadata']['name']} has {sorted(found)}")
    for selector in (STORAGE, SERVERS):
        for pod in world.kubectl.list("pods", selector):
            found = _families_of(pod)
            if found != wanted:
                raise AssertionError(f"pod {pod['metadata']['name']} has {sorted(found)}")
    slices = {one["addressType"] for one in world.kubectl.list("endpointslices", OWN)}
    if slices != wanted:
        raise AssertionError(f"EndpointSlices of {sorted(slices)}")
