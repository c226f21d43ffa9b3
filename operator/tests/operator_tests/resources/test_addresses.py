"""Names that servers advertise, and addresses that pods listen on, whatever families Kubernetes has."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml

from operator_tests.resources.clusters import INPUTS, Obj, cluster, live, objects
from waltz_operator.resources import RenderInputs
from waltz_operator.run.read_kubernetes import pod as pod_view

ROLES = ("ledger-server", "ledger-storage")


def with_families(families: Sequence[str], policy: str = "PreferDualStack") -> RenderInputs:
    """Services as they are in a cluster with these families."""
    more = {"ipFamilies": list(families), "ipFamilyPolicy": policy}
    there = {
        key: {**obj, "spec": {**obj["spec"], **more}} if key[0] == "Service" else obj
        for key, obj in live(objects(cluster(), RenderInputs())).items()
    }
    return replace(INPUTS, live=there)


def listens(found: dict[tuple[str, str], Obj], role: str) -> Any:
    (text,) = found["ConfigMap", role]["data"].values()
    return yaml.safe_load(text)[f"{role.removeprefix('ledger-')}.bind.host"]


@pytest.mark.parametrize(
    ("families", "address"),
    [(["IPv4"], "0.0.0.0"), (["IPv6"], "::"), (["IPv4", "IPv6"], ""), (["IPv6", "IPv4"], "")],
)
def test_pods_listen_on_every_family_that_their_service_has(families: list[str], address: str) -> None:
    found = objects(cluster(), with_families(families))
    assert [listens(found, role) for role in ROLES] == [address, address]


def test_a_new_service_gets_all_families_and_an_old_one_keeps_its_own() -> None:
    """With its families the configuration would change, and with that all pods would restart."""
    new = objects(cluster(), RenderInputs())
    old = objects(cluster(), with_families(["IPv4"], "SingleStack"))
    for name in (*ROLES, "ledger"):
        assert new["Service", name]["spec"]["ipFamilyPolicy"] == "PreferDualStack"
        assert old["Service", name]["spec"]["ipFamilyPolicy"] == "SingleStack"


def test_a_second_family_changes_what_pods_are_made_of() -> None:
    """Pods that listen on one family are replaced by such as listen on both."""
    one, two = (objects(cluster(), with_families(families)) for families in (["IPv4"], ["IPv4", "IPv6"]))
    for key in (("Deployment", "ledger-server"), ("StatefulSet", "ledger-storage-1-0")):
        hashes = [found[key]["metadata"]["annotations"]["waltz.dev/template-hash"] for found in (one, two)]
        assert hashes[0] != hashes[1]


def test_every_name_that_a_server_advertises_is_in_an_endpoint_slice() -> None:
    found = objects(cluster())
    for family, expected in (
        ("ipv4", {"10-1-2-3": ["10.1.2.3"], "10-1-2-4": ["10.1.2.4"]}),
        ("ipv6", {"fd00-1--3": ["fd00:1::3"], "fd00-1--4": ["fd00:1::4"]}),
    ):
        made = found["EndpointSlice", f"ledger-server-names-{family}"]
        assert {one["hostname"]: one["addresses"] for one in made["endpoints"]} == expected
        assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "ledger-server"
        assert made["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "waltz-operator"
        assert [one["port"] for one in made["ports"]] == [55180, 55181]


def test_without_a_server_there_is_no_slice() -> None:
    assert not [key for key in objects(cluster(), RenderInputs()) if key[0] == "EndpointSlice"]


def test_addresses_of_a_pod_that_has_ended_are_not_its_own() -> None:
    """Kubernetes may give them to another pod."""
    status = {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::3"}]}
    assert pod_view({"status": status}).addresses == ("10.1.2.3", "fd00::3")
    assert pod_view({"status": {**status, "phase": "Failed"}}).addresses == ()
    assert pod_view({"status": {"phase": "Pending"}}).addresses == ()


def test_the_empty_address_listens_on_both_families() -> None:
    """As the services bind it (`asyncio.create_server`)."""

    async def main() -> set[socket.AddressFamily]:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "", 0)
        families = {one.family for one in server.sockets}
        server.close()
        await server.wait_closed()
        return families

    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    assert asyncio.run(main()) == {socket.AF_INET, socket.AF_INET6}
