"""The connect string names every ZooKeeper server that there is, also those beyond what is wanted now."""

from dataclasses import replace

from operator_tests.resources.clusters import INPUTS, cluster
from waltz_operator.resources import desired_objects


def test_an_ensemble_that_never_shrinks_is_named_whole() -> None:
    """Three servers, made for three copies; of two copies one server follows. Who knows server 0 alone is cut
    off by its loss, though two of three serve."""
    two = cluster({"zookeeper": {"managed": {"replicas": None}}, "replicas": 2})
    bodies = desired_objects(two, replace(INPUTS, zookeeper_members=3))
    (ensemble,) = [
        b for b in bodies if b["kind"] == "StatefulSet" and b["metadata"]["name"] == "ledger-zookeeper"
    ]
    assert ensemble["spec"]["replicas"] == 3
    (server,) = [b for b in bodies if b["kind"] == "ConfigMap" and b["metadata"]["name"] == "ledger-server"]
    for number in range(3):
        assert f"ledger-zookeeper-{number}." in str(server["data"]), number
