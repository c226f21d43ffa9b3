"""Which IP families the pods of a cluster have, and names for their addresses.

A server advertises `<its address with dashes>.<headless Service>`. Kubernetes' DNS specification has such a
name for an address of an EndpointSlice that gives it as its hostname, and for no other one: what a DNS server
makes up for the rest is its own business (CoreDNS: these very names, but the names of pods with
`endpoint_pod_names`). So the operator writes slices of its own, next to those that Kubernetes makes of the
Service's selector: every DNS server resolves the names then.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import yaml

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import MANAGED_BY
from waltz_operator.api.topology import server_name
from waltz_operator.resources.common import SERVER, make
from waltz_operator.resources.inputs import Obj, RenderInputs

DUAL_STACK = "PreferDualStack"
IPV4, IPV6 = "IPv4", "IPv6"


def family_policy(inputs: RenderInputs, service: str) -> Obj:
    """All families that the Kubernetes cluster has; a Service that exists keeps what it has, for with its
    families the address changes that pods listen on."""
    live = _live_spec(inputs, service)
    return {"ipFamilyPolicy": live.get("ipFamilyPolicy", DUAL_STACK) if live else DUAL_STACK}


def listen_address(inputs: RenderInputs, service: str) -> str:
    """Address on which the pods behind a Service listen: every one of the families that it has. While
    somebody has deleted it, what the configuration of the same name says."""
    spec = _live_spec(inputs, service)
    said = None if spec else _said(inputs, service)
    if said is not None:
        return said
    families = spec.get("ipFamilies") or [IPV4]
    if IPV6 not in families:
        return "0.0.0.0"
    return "" if IPV4 in families else "::"


def _said(inputs: RenderInputs, name: str) -> str | None:
    data = inputs.live.get(("ConfigMap", name), {}).get("data")
    for text in data.values() if isinstance(data, Mapping) else ():
        try:
            keys = yaml.safe_load(str(text))
        except yaml.YAMLError:
            continue
        for key, value in keys.items() if isinstance(keys, Mapping) else ():
            if str(key).endswith(".bind.host") and value in ("", "::", "0.0.0.0"):
                return str(value)
    return None


def _live_spec(inputs: RenderInputs, service: str) -> Mapping[str, Any]:
    found = inputs.live.get(("Service", service), {}).get("spec")
    return found if isinstance(found, Mapping) else {}


def dashed(address: str) -> str:
    """As a server puts it into the name that it advertises."""
    return address.replace(".", "-").replace(":", "-")


def server_slices(cluster: WaltzCluster, inputs: RenderInputs, ports: list[Obj]) -> list[Obj]:
    """One EndpointSlice per family that a server has addresses of: whichever of its addresses a server takes
    for its own, there is a name of it."""
    found: dict[str, list[Obj]] = {}
    for addresses in inputs.server_addresses:
        for address in addresses:
            family = IPV6 if ipaddress.ip_address(address).version == 6 else IPV4
            endpoint = {
                "addresses": [address],
                "hostname": dashed(address),
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
            found.setdefault(family, []).append(endpoint)
    return [_slice(cluster, family, endpoints, ports) for family, endpoints in sorted(found.items())]


def _slice(cluster: WaltzCluster, family: str, endpoints: list[Obj], ports: list[Obj]) -> Obj:
    service = server_name(cluster)
    made = make(
        cluster,
        "discovery.k8s.io/v1",
        "EndpointSlice",
        f"{service}-names-{family.lower()}",
        SERVER,
        {
            "addressType": family,
            "endpoints": endpoints,
            "ports": [{key: one[key] for key in ("name", "port", "protocol")} for one in ports],
        },
    )
    made["metadata"]["labels"] |= {
        "kubernetes.io/service-name": service,
        "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
    }
    return made
