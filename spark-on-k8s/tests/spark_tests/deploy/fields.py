"""Fields of the two operators' SparkApplication that our applications use, with their types; below them, pod
templates.

Taken from api/v1beta2/sparkapplication_types.go of kubeflow/spark-operator and from the
CustomResourceDefinition sparkapplications.spark.apache.org (helm chart) of apache/spark-kubernetes-operator.
A field that is not here is not known to be there.
"""

from __future__ import annotations

from typing import Any

POD_TEMPLATE = object()
"""A pod template: metadata and spec."""
TEXTS = {"*": str}


class OneOf(tuple[str, ...]):
    """An enumeration."""


_KUBEFLOW_POD = {
    "cores": int,
    "coreRequest": str,
    "coreLimit": str,
    "memory": str,
    "memoryOverhead": str,
    "serviceAccount": str,
    "template": POD_TEMPLATE,
}
KUBEFLOW: dict[str, Any] = {
    "type": OneOf(("Java", "Python", "Scala", "R")),
    "pythonVersion": OneOf(("2", "3")),
    "mode": OneOf(("cluster", "client")),
    "sparkVersion": str,
    "image": str,
    "imagePullPolicy": str,
    "mainApplicationFile": str,
    "arguments": [str],
    "sparkConf": TEXTS,
    "memoryOverheadFactor": str,
    "restartPolicy": {
        "type": OneOf(("Never", "Always", "OnFailure")),
        "onFailureRetries": int,
        "onFailureRetryInterval": int,
        "onSubmissionFailureRetries": int,
        "onSubmissionFailureRetryInterval": int,
    },
    "driver": _KUBEFLOW_POD,
    "executor": {**_KUBEFLOW_POD, "instances": int},
}
KUBEFLOW_REQUIRED = {"type", "sparkVersion", "mainApplicationFile", "driver", "executor"}
APACHE: dict[str, Any] = {
    "deploymentMode": OneOf(("ClientMode", "ClusterMode")),
    "pyFiles": str,
    "driverArgs": [str],
    "sparkConf": TEXTS,
    "runtimeVersions": {"sparkVersion": str},
    "driverSpec": {"podTemplateSpec": POD_TEMPLATE},
    "executorSpec": {"podTemplateSpec": POD_TEMPLATE},
    "applicationTolerations": {
        "resourceRetainPolicy": OneOf(("Always", "Never", "OnFailure")),
        "restartConfig": {
            "restartPolicy": OneOf(("Always", "Never", "OnFailure", "OnInfrastructureFailure")),
            "maxRestartAttempts": int,
            "restartBackoffMillis": int,
        },
    },
}


def mistakes(value: Any, known: Any, place: str = "spec") -> list[str]:
    """What in a rendered object is not in a table."""
    if known is POD_TEMPLATE:
        return [] if set(value) == {"metadata", "spec"} else [f"{place} is no pod template"]
    if isinstance(known, OneOf):
        return [] if value in known else [f"{place} is {value!r}"]
    if isinstance(known, list):
        return [line for i, one in enumerate(value) for line in mistakes(one, known[0], f"{place}[{i}]")]
    if isinstance(known, dict):
        found = []
        for name, part in value.items():
            if name not in known and "*" not in known:
                found.append(f"{place}.{name} is not known")
            else:
                found += mistakes(part, known.get(name, known.get("*")), f"{place}.{name}")
        return found
    return [] if type(value) is known else [f"{place} is {value!r}"]
