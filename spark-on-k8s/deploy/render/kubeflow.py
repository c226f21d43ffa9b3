"""A SparkApplication of the Kubeflow Spark operator (`sparkoperator.k8s.io/v1beta2`)."""

from __future__ import annotations

from typing import Any

from render.application import Application, Resources
from render.conf import arguments, common_conf, main_file
from render.pods import driver_pod, executor_pod, labels


def spark_application(application: Application) -> dict[str, Any]:
    """The object. A stream is started again whenever it ends; the operator makes sure that there is one
    driver."""
    conf = common_conf(application)
    overhead = conf.pop("spark.kubernetes.memoryOverheadFactor")
    conf.pop("spark.kubernetes.executor.podNamePrefix")  # the operator has names of its own
    restart: dict[str, Any] = {"type": "Never"}
    if application.streaming:
        restart = {"type": "Always", "onFailureRetryInterval": 10, "onSubmissionFailureRetryInterval": 20}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {
            "name": application.name,
            "namespace": application.namespace,
            "labels": labels(application),
        },
        "spec": {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "sparkVersion": application.spark_version,
            "image": application.image,
            "imagePullPolicy": "IfNotPresent",
            "mainApplicationFile": main_file(application),
            "arguments": arguments(application),
            "sparkConf": dict(sorted(conf.items())),
            "memoryOverheadFactor": overhead,
            "restartPolicy": restart,
            "driver": {
                **_resources(application.driver),
                "serviceAccount": application.account,
                "template": _template(driver_pod(application)),
            },
            "executor": {
                **_resources(application.executor),
                "instances": application.executor.instances,
                "template": _template(executor_pod(application)),
            },
        },
    }


def _resources(given: Resources) -> dict[str, Any]:
    found: dict[str, Any] = {
        "cores": given.cores,
        "coreRequest": given.core_request,
        "memory": given.memory,
    }
    return found if given.core_limit is None else {**found, "coreLimit": given.core_limit}


def _template(pod: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": pod["metadata"], "spec": pod["spec"]}
