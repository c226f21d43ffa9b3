"""A person's pod template over ours."""

from __future__ import annotations

from typing import Any

from operator_tests.resources.clusters import Obj, Spec, cluster, objects


def template(changes: Spec, **metadata: Any) -> Obj:
    wanted = {"metadata": metadata, "spec": changes}
    found: Obj = objects(cluster({"servers": {"podTemplate": wanted}}))["Deployment", "ledger-server"]
    inner: Obj = found["spec"]["template"]
    return inner


PLAIN = template({})


def test_objects_are_merged_and_an_empty_list_takes_out() -> None:
    spec = template({"securityContext": {"fsGroup": 5}, "topologySpreadConstraints": []})["spec"]
    assert spec["securityContext"] == {**PLAIN["spec"]["securityContext"], "fsGroup": 5}
    assert spec["topologySpreadConstraints"] == []


def test_containers_volumes_and_variables_are_merged_by_name() -> None:
    changes = {
        "containers": [
            {
                "name": "server",
                "env": [{"name": "A", "value": "1"}],
                "volumeMounts": [
                    {"name": "extra", "mountPath": "/extra"},
                    {"name": "other", "mountPath": "/tmp"},
                ],
            },
            {"name": "sidecar", "image": "x"},
        ],
        "volumes": [{"name": "extra", "emptyDir": {}}],
    }
    spec = template(changes)["spec"]
    server, sidecar = spec["containers"]
    assert server["image"] == "waltz-server:1"
    assert server["env"] == [{"name": "A", "value": "1"}]
    assert sidecar == {"name": "sidecar", "image": "x"}
    paths = {mount["mountPath"]: mount["name"] for mount in server["volumeMounts"]}
    assert paths["/extra"] == "extra"
    assert paths["/tmp"] == "other"
    assert [volume["name"] for volume in spec["volumes"]][-1] == "extra"
    assert len(spec["volumes"]) == len(PLAIN["spec"]["volumes"]) + 1


def test_affinity_and_other_lists_are_replaced() -> None:
    spec = template({"affinity": {"nodeAffinity": {}}, "tolerations": [{"key": "a"}]})["spec"]
    assert spec["affinity"] == {"nodeAffinity": {}}
    assert spec["tolerations"] == [{"key": "a"}]


def test_labels_that_objects_are_found_by_stay() -> None:
    labels = {"app.kubernetes.io/component": "mine", "team": "t"}
    metadata = template({}, labels=labels, annotations={"prometheus.io/port": "1", "note": "n"})["metadata"]
    decided = {"waltz.dev/decision": metadata["labels"]["waltz.dev/decision"]}
    assert metadata["labels"] == {**PLAIN["metadata"]["labels"], **decided, "team": "t"}
    assert metadata["annotations"]["note"] == "n"
    assert metadata["annotations"]["prometheus.io/port"] == "55181"
