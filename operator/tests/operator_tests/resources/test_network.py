"""Who may connect to whom: NetworkPolicies, and names in certificates."""

from __future__ import annotations

import yaml

from operator_tests.resources.clusters import VARIANTS, Spec, cluster, merged, objects
from waltz_operator.api.security import NetworkPolicy
from waltz_operator.api.topology import server_peer


def test_servers_reach_each_other_where_only_some_may_connect_to_them() -> None:
    """They watch each other (docs/recovery.md)."""
    clients = [{"podSelector": {"app": "ledger"}}]
    found = objects(
        cluster({"networkPolicy": {"clients": clients}, "tls": {"allowedPeers": {"server": ["app"]}}})
    )
    ingress = found["NetworkPolicy", "ledger-server"]["spec"]["ingress"][0]
    assert [port["port"] for port in ingress["ports"]] == [55180]
    labels = [peer.get("podSelector", {}).get("matchLabels", {}) for peer in ingress["from"]]
    assert "server" in [one.get("app.kubernetes.io/component") for one in labels]
    (text,) = found["ConfigMap", "ledger-server"]["data"].values()
    assert server_peer(cluster()) in yaml.safe_load(text)["server.ssl.allowedPeers"]


def test_servers_on_ports_of_their_machines_reach_each_other() -> None:
    """They connect to what is advertised: a policy of the source may see that address and port. Who may
    arrive from machines is not for the cluster to say."""
    listener: Spec = {"servers": {"externalListener": {"domain": "w.example.com", "hostPort": 31181}}}
    closed: Spec = {"networkPolicy": {"egress": "Closed", "clients": []}}

    def policy(changes: Spec, component: str = "server") -> Spec:
        found = objects(cluster(merged(merged(VARIANTS["console"], closed), changes)))
        spec: Spec = found["NetworkPolicy", f"ledger-{component}"]["spec"]
        return spec

    anywhere = {"ports": [{"port": 31181, "protocol": "TCP"}]}
    on_pod: Spec = {"servers": {"externalListener": {"address": "PodIP", "domain": "w.example.com"}}}
    for component in ("server", "console"):
        assert policy(listener, component)["egress"][-1] == anywhere
        assert policy(on_pod, component)["egress"] == policy({}, component)["egress"]
    assert policy(on_pod)["ingress"] == policy({})["ingress"]
    for component in ("server", "storage", "console", "zookeeper"):
        assert policy(listener, component)["ingress"] == policy({}, component)["ingress"]
        assert (
            component in ("server", "console")
            or policy(listener, component)["egress"] == policy({}, component)["egress"]
        )


def test_an_empty_list_admits_nobody_but_the_cluster_s_own() -> None:
    """In `from` of a NetworkPolicy it would admit everybody."""

    def peers(policy: Spec) -> dict[tuple[str, int], list[str] | None]:
        found = objects(cluster(merged(VARIANTS["console"], {"networkPolicy": policy})))
        return {
            (component, port["port"]): [
                str(peer["podSelector"]["matchLabels"].get("app.kubernetes.io/component", "operator"))
                if "podSelector" in peer
                else "everybody"
                for peer in rule["from"]
            ]
            if "from" in rule
            else None
            for component in ("storage", "server", "console", "zookeeper")
            for rule in found["NetworkPolicy", f"ledger-{component}"]["spec"]["ingress"]
            for port in rule["ports"]
        }

    open_, closed = peers({}), peers({"clients": [], "metrics": []})
    assert open_["server", 55180] is open_["console", 8090] is None
    assert closed["server", 55180] == ["console", "server", "operator"]
    assert closed["console", 8090] == ["operator"]
    assert closed["storage", 55282] == closed["server", 55181] == ["operator"]
    assert {way for way in closed if closed[way] is None} == set()
    assert closed["zookeeper", 2181] == peers({"clients": [], "zookeeper": "Open"})["zookeeper", 2181]


def test_pods_may_be_kept_from_connecting_elsewhere() -> None:
    """With the ports of what each one needs, and DNS; open by default."""
    closed: Spec = {"networkPolicy": {"egress": "Closed"}}

    def ways(component: str, changes: Spec) -> list[tuple[str, list[int]]]:
        spec = objects(cluster(changes))["NetworkPolicy", f"ledger-{component}"]["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        found = []
        for rule in spec["egress"]:
            peers = [peer["podSelector"]["matchLabels"] for peer in rule.get("to", ())]
            names = [labels["app.kubernetes.io/component"] for labels in peers]
            found.append((",".join(names), sorted({port["port"] for port in rule["ports"]})))
        return found

    assert ways("storage", closed) == [("", [53]), ("zookeeper", [2181])]
    among_themselves = ("server", [55180])
    assert ways("server", closed) == [
        ("", [53]),
        ("zookeeper", [2181]),
        ("storage", [55280]),
        among_themselves,
    ]
    assert ways("zookeeper", closed) == [("", [53]), ("zookeeper", [2888, 3888])]
    adopted = merged(VARIANTS["adopted"], closed)
    outside = ("", [5280])
    assert ways("server", adopted) == [
        ("", [53]), ("", [2181]), ("storage", [55280]), outside, among_themselves,
    ]  # fmt: skip
    for found in objects(cluster()).values():
        assert found["kind"] != "NetworkPolicy" or found["spec"]["policyTypes"] == ["Ingress"]


def test_whoever_is_kept_from_connecting_elsewhere_is_named() -> None:
    """Copy jobs, which hold the operator's certificate, are in no policy: the field has to say so."""
    closed: Spec = {"networkPolicy": {"egress": "Closed"}}
    found = objects(cluster(merged(VARIANTS["console"], closed)))
    kept = {
        found[key]["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for key in found
        if key[0] == "NetworkPolicy"
    }
    assert kept == {"storage", "server", "console", "zookeeper"}
    description = str(NetworkPolicy.model_fields["egress"].description)
    assert description.startswith("What storage nodes, servers, the console and the managed ZooKeeper may")
    assert "Copy jobs may connect to everything" in description
