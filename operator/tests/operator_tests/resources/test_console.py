"""The console of a cluster: what runs, whom it may ask, and that nothing else changes for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import yaml

from operator_tests.resources.clusters import INPUTS, VARIANTS, Obj, Spec, cluster, live, merged, objects
from waltz_operator.api.topology import tls_roles
from waltz_operator.resources.images import ImageDefaults
from waltz_operator.resources.login import Level
from waltz_operator.tls.secrets import MaterialDigests
from waltz_tools.cli.console import console
from waltz_tools.console.settings import DEFAULT_PORT

ON: Spec = {"console": {"enabled": True}, "images": {"console": "waltz-tools:1"}}


def deployed(changes: Spec, **inputs: Any) -> Obj:
    found = objects(cluster(changes), replace(INPUTS, **inputs))
    made: Obj = found["Deployment", "ledger-console"]
    return made


def container(changes: Spec, **inputs: Any) -> dict[str, Any]:
    (one,) = deployed(changes, **inputs)["spec"]["template"]["spec"]["containers"]
    return dict(one)


def file(changes: Spec) -> dict[str, Any]:
    found = objects(cluster(changes))["ConfigMap", "ledger-console"]["data"]
    return dict(yaml.safe_load(found["waltz-console.yml"]))


def test_there_is_none_unless_it_is_wanted_and_nothing_else_changes() -> None:
    off, on = objects(cluster()), objects(cluster(ON))
    added = {("ConfigMap", "ledger-console"), ("Service", "ledger-console"), ("Deployment", "ledger-console")}
    assert on.keys() - off.keys() == added | {("NetworkPolicy", "ledger-console")}
    changed = {key for key in off if on[key] != off[key]}
    assert {key for key in changed if key[0] != "NetworkPolicy"} == {
        ("ConfigMap", "ledger-storage"),
        *(("StatefulSet", f"ledger-storage-{group}-0") for group in (1, 2, 3)),
    }, "the admin ports take its certificate, and servers take it anyway"
    again = objects(cluster({"console": {"enabled": False}}), replace(INPUTS, live=live(off)))
    assert again == objects(cluster(), replace(INPUTS, live=live(off)))


def test_it_is_the_command_with_the_files_that_are_mounted() -> None:
    """Every option is one of `waltz console`."""
    arguments = container(VARIANTS["console"])["args"]
    assert arguments[0] == "console"
    options = {
        name
        for annotation in console.__annotations__.values()
        for one in [str(annotation)]
        for name in one.replace('"', "'").split("'")
        if name.startswith("--")
    }
    known = {part for name in options for part in name.split("/")} | {"--config"}
    assert {one for one in arguments if one.startswith("--")} <= known
    pairs = dict(pairwise(arguments))
    assert pairs["--config"] == "/etc/waltz/config/waltz-console.yml"
    assert pairs["--token-file"] == "/etc/waltz/console/token"
    assert (pairs["--tls-certificate"], pairs["--tls-key"]) == (
        "/etc/waltz/tls/tls.crt",
        "/etc/waltz/tls/tls.key",
    )
    assert (pairs["--host"], pairs["--port"]) == ("0.0.0.0", str(DEFAULT_PORT))
    hosts = [arguments[n + 1] for n, one in enumerate(arguments) if one == "--allow-host"]
    assert hosts == [
        "ledger-console", "ledger-console.demo", "ledger-console.demo.svc",
        "ledger-console.demo.svc.cluster.local", "waltz.example.com",
    ]  # fmt: skip
    mounts = [mount["mountPath"] for mount in container(VARIANTS["console"])["volumeMounts"]]
    assert mounts == ["/etc/waltz/config", "/etc/waltz/tls", "/etc/waltz/console", "/tmp"]


def test_it_shows_no_data_and_appends_nothing_unless_data_are_asked_for() -> None:
    assert "--no-allow-data" in container(ON)["args"]
    assert "--allow-data" in container(VARIANTS["console"])["args"]
    for changes in (ON, VARIANTS["console"]):
        assert "--allow-append" not in container(changes)["args"]


def test_its_file_is_that_of_tools_and_of_a_client() -> None:
    keys = file(ON)
    assert keys["cluster.root"] == "/waltz/demo/ledger"
    for prefix in ("ssl", "client.ssl"):
        assert keys[f"{prefix}.enabled"] is True
        assert (
            keys[f"{prefix}.keyStore.location"] == keys[f"{prefix}.trustStore.location"] == "/etc/waltz/tls"
        )
    plain = file(VARIANTS["console, plaintext"])
    assert (plain["ssl.enabled"], plain["client.ssl.enabled"]) == (False, False)
    assert "--allow-plaintext" in container(VARIANTS["console, plaintext"])["args"]
    port = objects(cluster(VARIANTS["console, plaintext"]))["Service", "ledger-console"]["spec"]["ports"][0]
    assert port["name"] == "http"


def test_it_has_a_certificate_of_its_own() -> None:
    assert [role.role for role in tls_roles(cluster())] == ["server", "storage", "operator", "client"]
    (role,) = [one for one in tls_roles(cluster(VARIANTS["console"])) if one.role == "console"]
    assert (role.secret, role.common_name) == ("ledger-tls-console", "ledger-console")
    assert {"ledger-console.demo", "ledger-console.demo.svc", "localhost", "waltz.example.com"} <= set(
        role.dns_names
    )
    assert "127.0.0.1" in role.addresses
    volumes = deployed(VARIANTS["console, own certificates"])["spec"]["template"]["spec"]["volumes"]
    (tls,) = [one["secret"]["secretName"] for one in volumes if one["name"] == "tls"]
    assert tls == "own-console"


def test_the_admin_port_takes_its_certificate_only_where_there_is_one() -> None:
    def allowed(changes: Spec, role: str, key: str) -> list[str]:
        (text, *_) = objects(cluster(changes))["ConfigMap", f"ledger-{role}"]["data"].values()
        return list(yaml.safe_load(text).get(key, ()))

    admin = "storage.admin.ssl.allowedPeers"
    assert allowed({}, "storage", admin) == ["ledger-operator.demo"]
    assert allowed(ON, "storage", admin) == ["ledger-operator.demo", "ledger-console.demo"]
    assert "ledger-console.demo" not in allowed(ON, "storage", "storage.ssl.allowedPeers"), (
        "it reads no files"
    )
    server = "server.ssl.allowedPeers"
    assert allowed(ON, "server", server) == []
    assert "ledger-console.demo" in allowed(VARIANTS["console of a closed cluster"], "server", server)


def test_it_may_be_reached_by_clients_and_reaches_what_it_shows() -> None:
    opened = objects(cluster(ON))["NetworkPolicy", "ledger-console"]["spec"]
    assert opened["ingress"] == [{"ports": [{"port": 8090, "protocol": "TCP"}]}], "who has no token gets 401"
    found = objects(cluster(VARIANTS["console of a closed cluster"]))
    closed = found["NetworkPolicy", "ledger-console"]["spec"]
    assert closed["ingress"][0]["from"][0] == {"podSelector": {"matchLabels": {"app": "x"}}}
    ports = [sorted({port["port"] for port in rule["ports"]}) for rule in closed["egress"]]
    assert ports == [[53], [2181], [55281], [55180]], "never the storage port"
    own = {"app.kubernetes.io/component": "console"}
    for policy, port in (("ledger-storage", 55281), ("ledger-server", 55180), ("ledger-zookeeper", 2181)):
        (rule,) = [
            one
            for one in found["NetworkPolicy", policy]["spec"]["ingress"]
            if port in [given["port"] for given in one["ports"]]
        ]
        labels = [peer["podSelector"]["matchLabels"] for peer in rule["from"] if "podSelector" in peer]
        assert any(own.items() <= one.items() for one in labels), policy


def test_its_image_is_that_of_the_tools() -> None:
    assert container(ON)["image"] == "waltz-tools:1"
    by_version = {"version": "0.1.0", "images": {"registry": "r"}, "console": {"enabled": True}}
    defaults = ImageDefaults(digests={"waltz-tools:0.1.0": "sha256:1"})
    assert container(by_version, images=defaults)["image"] == "r/waltz-tools:0.1.0@sha256:1"


def test_a_renewed_certificate_restarts_nothing_and_a_new_authority_does() -> None:
    before = objects(cluster(ON), replace(INPUTS, tls_digests={"console": MaterialDigests("m1", "a1")}))

    def template(material: str, authorities: str) -> Obj:
        digests = {"console": MaterialDigests(material, authorities)}
        found = objects(cluster(ON), replace(INPUTS, tls_digests=digests, live=live(before)))
        made: Obj = found["Deployment", "ledger-console"]["spec"]["template"]
        return made

    as_it_was = before["Deployment", "ledger-console"]["spec"]["template"]
    assert template("m2", "a1") == as_it_was
    assert template("m2", "a2") != as_it_was


def test_it_logs_in_to_a_closed_zookeeper_as_the_roles_do() -> None:
    main = container(ON, login=Level.OWN)
    assert "/etc/waltz/config/waltz-console-login.yml" in main["args"]
    assert "/etc/waltz/zookeeper-auth" in [mount["mountPath"] for mount in main["volumeMounts"]]


def test_a_persons_template_is_laid_over_it() -> None:
    wanted = merged(
        ON,
        {
            "console": {
                "podTemplate": {"spec": {"priorityClassName": "low"}},
                "resources": {"limits": {"memory": "1Gi"}},
            }
        },
    )
    assert deployed(wanted)["spec"]["template"]["spec"]["priorityClassName"] == "low"
    assert container(wanted)["resources"]["limits"] == {"memory": "1Gi"}
