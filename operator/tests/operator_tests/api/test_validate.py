"""What is refused, with the field and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from operator_tests.api.admission_table import BAD, GOOD, Bad
from operator_tests.resources.clusters import PLAIN, Spec, merged
from waltz_operator.api.errors import ResourceError
from waltz_operator.api.parse import parse_cluster, status_body, stored_cluster
from waltz_operator.api.parts import ZooKeeper
from waltz_operator.api.validate import problems


def found(changes: Spec, name: str = "ledger") -> list[str]:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": name},
        "spec": merged(PLAIN, changes),
    }
    return [str(problem) for problem in problems(parse_cluster(body))]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.line)
def test_each_mistake_is_one_line(bad: Bad) -> None:
    assert found(bad.changes) == [bad.line]


@pytest.mark.parametrize("good", GOOD, ids=str)
def test_what_is_good_has_no_problem(good: Spec) -> None:
    assert found(good) == []


@pytest.mark.parametrize("name", ["1st", "a.b", "x" * 31, "Upper", "end-"])
def test_names_of_which_no_service_can_be_made(name: str) -> None:
    assert found({}, name)[0].startswith("metadata.name: ")


UNREADABLE: list[tuple[dict[str, Any], str]] = [
    ({"kind": "Pod"}, "kind: must be WaltzCluster, not 'Pod'"),
    (
        {"apiVersion": "waltz.dev/v1"},
        "apiVersion: must be waltz.dev/v1alpha1 or waltz.dev/v1beta1, not 'waltz.dev/v1'",
    ),
    ({"spec": []}, "spec: must be an object"),
    ({"spec": {}}, "spec.partitions: is required"),
    ({"spec": merged(PLAIN, {"partitons": 1})}, "spec.partitons: is not a field of this version"),
    (
        {"spec": merged(PLAIN, {"partitions": 0})},
        "spec.partitions: Input should be greater than or equal to 1",
    ),
    ({"metadata": {}}, "metadata.name: is required"),
]


@pytest.mark.parametrize(("changes", "text"), UNREADABLE)
def test_what_cannot_be_read_names_the_field(changes: dict[str, Any], text: str) -> None:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": "x"},
        "spec": PLAIN,
    }
    with pytest.raises(ResourceError) as caught:
        parse_cluster({**body, **changes})
    assert str(caught.value) == text
    assert caught.value.user_error


def test_a_status_survives_writing_and_reading() -> None:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": "x"},
        "spec": PLAIN,
        "status": {
            "observedGeneration": 3,
            "clusterKey": "k",
            "conditions": [
                {
                    "type": "Available",
                    "status": "True",
                    "reason": "AsWanted",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "nodes": [{"name": "1-0", "connectString": "h:1"}],
            "operation": {"kind": "Create", "step": "copy"},
            "ofALaterVersion": {"x": 1},
        },
    }
    status = parse_cluster(body).status
    assert status.cluster_key == "k"
    available = status.condition("Available")
    assert available is not None
    assert available.reason == "AsWanted"
    again = parse_cluster({**body, "status": status_body(status)}).status
    assert again == status


def test_a_status_of_another_version_is_read_but_for_what_guards_data() -> None:
    body = {
        "apiVersion": "waltz.dev/v1alpha1",
        "kind": "WaltzCluster",
        "metadata": {"name": "x"},
        "spec": PLAIN,
    }
    node = {"name": "1-0", "connectString": "a:1", "phase": "Flying"}
    status = {"phase": "Ready", "nodes": [node], "clusterKey": "k", "news": 1}
    found = stored_cluster({**body, "status": status}).status
    assert (found.phase, found.nodes, found.cluster_key) == ("Ready", (), "k")
    with pytest.raises(ResourceError, match=r"status\.operation"):
        stored_cluster({**body, "status": {"operation": {"kind": 7}}})


@pytest.mark.parametrize("name", ["zk..example", ".zk", "a" * 64 + ".example"])
def test_a_name_that_can_be_no_host_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="should match pattern"):
        ZooKeeper.model_validate({"connectString": f"zk:2181,{name}:2181"})
