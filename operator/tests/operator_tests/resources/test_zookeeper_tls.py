"""What is rendered for a managed ZooKeeper that is reached through TLS."""

from __future__ import annotations

from dataclasses import replace

import yaml

from operator_tests.resources.clusters import INPUTS, VARIANTS, Obj, cluster, objects, of_kind
from waltz_operator.tls.secrets import MaterialDigests


def test_an_ensemble_with_tls_is_reached_by_nothing_else() -> None:
    made = cluster(VARIANTS["ensemble with TLS"])
    found = objects(made)
    config = dict(
        line.split("=", 1)
        for line in found["ConfigMap", "ledger-zookeeper"]["data"]["zoo-3.cfg"].splitlines()
    )
    assert (config["clientPort"], config["clientPortAddress"]) == ("2181", "127.0.0.1"), "for the probe alone"
    assert (config["secureClientPort"], config["ssl.clientAuth"]) == ("2281", "need")
    assert (config["sslQuorum"], config["ssl.quorum.clientAuth"]) == ("true", "need")
    for side in ("ssl", "ssl.quorum"):
        assert config[f"{side}.keyStore.location"] == "/etc/waltz/tls/tls-combined.pem"
        assert config[f"{side}.trustStore.location"] == "/etc/waltz/tls/ca.crt"
    for name in ("ledger-zookeeper", "ledger-zookeeper-headless"):
        assert found["Service", name]["spec"]["ports"][0]["port"] == 2281
    opened = found["NetworkPolicy", "ledger-zookeeper"]["spec"]["ingress"][0]["ports"]
    assert [port["port"] for port in opened] == [2281]
    for role in ("storage", "server"):
        left = found["NetworkPolicy", f"ledger-{role}"]["spec"]["egress"]
        assert {"port": 2281, "protocol": "TCP"} in [port for rule in left for port in rule["ports"]]
        keys = yaml.safe_load(found["ConfigMap", f"ledger-{role}"]["data"][f"waltz-{role}.yml"])
        assert all(entry.endswith(".demo.svc:2281") for entry in keys["zookeeper.connectString"].split(","))
        assert keys["zookeeper.ssl.trustStore.location"] == "/etc/waltz/tls"
        assert keys["zookeeper.ssl.keyStore.location"] == "/etc/waltz/tls"
    issued = cluster({**VARIANTS["cert-manager"], "zookeeper": {"managed": {"tls": "Enabled"}}})
    formats = {
        obj["metadata"]["name"]: obj["spec"].get("additionalOutputFormats")
        for obj in of_kind(objects(issued), "Certificate")
    }
    assert formats.pop("ledger-tls-zookeeper") == [{"type": "CombinedPEM"}]
    assert set(formats.values()) == {None}


def test_a_new_authority_restarts_the_servers_of_an_ensemble_with_tls_only() -> None:
    """A renewed certificate does not: they follow their files."""

    def annotations(variant: str, *digests: str) -> Obj:
        inputs = replace(INPUTS, tls_digests={"zookeeper": MaterialDigests(*digests)})
        found: Obj = objects(cluster(VARIANTS[variant]), inputs)["StatefulSet", "ledger-zookeeper"]
        return dict(found["spec"]["template"]["metadata"]["annotations"])

    first = annotations("ensemble with TLS", "m1", "a1")
    assert annotations("ensemble with TLS", "m2", "a1") == first
    assert annotations("ensemble with TLS", "m2", "a2") != first
    assert annotations("ensemble", "m1", "a1") == annotations("ensemble", "m2", "a2")
