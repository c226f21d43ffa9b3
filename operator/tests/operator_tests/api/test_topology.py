"""Names."""

from __future__ import annotations

import ipaddress

import pytest

from operator_tests.resources.clusters import EXTERNAL, GROUPS, VARIANTS, cluster
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.cluster_status import WaltzClusterStatus, ZooKeeperStatus
from waltz_operator.api.topology import (
    connect_string,
    copy_job_name,
    node_identity,
    operator_peer,
    server_peer,
    storage_nodes,
    tls_roles,
    zookeeper_claims,
    zookeeper_pods,
)


@pytest.mark.parametrize(
    ("copies", "given", "servers"),
    [(3, None, 3), (5, None, 3), (1, None, 1), (2, None, 1), (1, 3, 3), (3, 1, 1)],
)
def test_a_cluster_that_survives_the_loss_of_a_machine_has_a_zookeeper_that_does(
    copies: int, given: int | None, servers: int
) -> None:
    made = cluster({"replicas": copies, "zookeeper": {"managed": {"replicas": given}}})
    assert len(zookeeper_pods(made)) == len(zookeeper_claims(made)) == servers


def test_the_shorthand_is_groups_of_one_node() -> None:
    short = storage_nodes(cluster())
    written = storage_nodes(cluster({"replicas": None, "storage": {"groups": [{"name": n} for n in "123"]}}))
    assert short == written
    assert storage_nodes(cluster({"replicas": None})) == short, "three copies by default"
    assert [node.reference for node in short] == ["1-0", "2-0", "3-0"]
    assert short[0].connect_string == "ledger-storage-1-0-0.ledger-storage.demo.svc:55280"
    assert (short[0].pod, short[0].pvc) == ("ledger-storage-1-0-0", "data-ledger-storage-1-0-0")


def test_groups_nodes_zones_and_ids() -> None:
    nodes = storage_nodes(cluster({"replicas": None, "storage": {"groups": GROUPS}}))
    assert [(node.reference, node.group_id, node.zone) for node in nodes] == [
        ("a-0", 7, "z1"),
        ("a-1", 7, "z1"),
        ("b-x", None, "z2"),
        ("b-y", None, "z2"),
        ("3-0", 3, None),
    ]


def test_external_nodes_keep_their_addresses() -> None:
    nodes = storage_nodes(cluster(VARIANTS["adopted"]))
    assert [node.connect_string for node in nodes] == [f"s{n}.example.com:5280" for n in range(len(EXTERNAL))]
    assert {node.admin_port for node in nodes} == {5281}
    assert all(node.external for node in nodes)
    assert nodes[0].host == "s0.example.com"


def test_a_node_that_left_the_specification_has_the_same_identity() -> None:
    made = cluster({"replicas": None, "storage": {"groups": GROUPS}})
    for node in storage_nodes(made):
        assert node_identity(made, node.group, node.name, node.group_id, zone=node.zone) == node


def test_the_longest_names_still_fit() -> None:
    """A StatefulSet's name and a hash of ten digits behind it must be a label; a common name has 64
    characters."""
    made = cluster(
        {"replicas": None, "storage": {"groups": [{"name": "g" * 6, "nodes": [{"name": "n" * 6}]}]}},
        name="c" * 30,
    )
    node = storage_nodes(made)[0]
    assert len(node.statefulset) + 11 <= 63
    assert len(node.pod) <= 63
    assert all(len(role.common_name) <= 64 for role in tls_roles(made))


def test_names_of_copy_jobs_are_short_and_tell_jobs_apart() -> None:
    made = cluster(name="c" * 30)
    assert copy_job_name(cluster(), "drain-1-0", 3) == "ledger-copy-drain-1-0-3"
    names = {copy_job_name(made, f"{'m' * 200}.{n}", p) for n in range(5) for p in range(5)}
    assert len(names) == 25
    assert all(len(name) <= 63 for name in names)


def dns_names(made: WaltzCluster) -> dict[str, tuple[str, ...]]:
    return {role.role: role.dns_names for role in tls_roles(made)}


def test_names_of_certificates() -> None:
    made = cluster(
        {
            "servers": {"externalListener": {"domain": "w.example.com"}},
            "tls": {"extraNames": ["x.example.com", "10.0.0.9", "fd00::1"]},
        }
    )
    names = dns_names(made)
    assert names["server"][0] == server_peer(made) == "ledger-server.demo"
    assert {"*.ledger-server.demo.svc", "ledger.demo.svc", "*.w.example.com", "x.example.com"} <= set(
        names["server"]
    )
    assert "*.ledger-storage.demo.svc" in names["storage"]
    assert names["operator"] == (operator_peer(made),)
    assert tls_roles(made)[0].addresses == ("10.0.0.9", "fd00::1")
    assert set(dns_names(cluster(VARIANTS["own certificates"]))) == {"server", "storage", "operator"}
    assert dns_names(cluster(VARIANTS["plaintext"])) == {}


@pytest.mark.parametrize(
    "written", ["2001:DB8::1", "2001:db8:0:0::1", "::ffff:10.0.0.1", "10.0.0.9", "fd00::1"]
)
def test_an_address_is_in_the_form_in_which_a_certificate_shows_it(written: str) -> None:
    made = cluster({"tls": {"extraNames": [written, "x.example.com", "1.2.3"]}})
    role = tls_roles(made)[0]
    assert role.addresses == (str(ipaddress.ip_address(written)),)
    assert role.dns_names[-2:] == ("x.example.com", "1.2.3")


def test_an_address_that_is_written_twice_is_one() -> None:
    made = cluster({"tls": {"extraNames": ["2001:DB8::1", "2001:db8::1"]}})
    assert tls_roles(made)[0].addresses == ("2001:db8::1",)


def test_connect_strings() -> None:
    ensemble = connect_string(cluster(VARIANTS["ensemble"]))
    assert ensemble.count(",") == 2
    assert ensemble.startswith("ledger-zookeeper-0.ledger-zookeeper-headless.demo.svc:2181,")
    assert connect_string(cluster(VARIANTS["own zookeeper"])) == "zk1.infra:2181"


def test_a_connect_string_has_all_servers_of_an_ensemble_that_never_shrinks() -> None:
    """Three copies became two, so one server is wanted, and three are there."""

    def servers(made: WaltzCluster, members: int | None = None) -> int:
        return len(connect_string(made, members).split(","))

    fewer = cluster({"replicas": 2, "zookeeper": {"managed": {"replicas": None}}})
    recorded = fewer._replace(status=WaltzClusterStatus(zookeeper=ZooKeeperStatus(members=3)))
    assert servers(fewer) == 1
    assert servers(recorded) == 3
    assert servers(recorded, 4) == 4, "who has seen the ensemble knows it better than the last status"
    assert servers(recorded, 1) == 1
    more = cluster({"zookeeper": {"managed": {"replicas": 5}}})
    assert servers(more._replace(status=recorded.status)) == 5
    outside = cluster(VARIANTS["own zookeeper"])._replace(status=recorded.status)
    assert connect_string(outside) == "zk1.infra:2181"
