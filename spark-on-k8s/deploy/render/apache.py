"""A SparkApplication of the Apache Spark Kubernetes operator (`spark.apache.org/v1`)."""

from __future__ import annotations

from typing import Any

from render.application import Application
from render.conf import arguments, cluster_conf, main_file
from render.pods import driver_pod, executor_pod, labels

_RESTARTS = 2_147_483_647


def spark_application(application: Application) -> dict[str, Any]:
    """The object. A stream is started again whenever it ends."""
    restart: dict[str, Any] = {"restartPolicy": "Never"}
    if application.streaming:
        restart = {
            "restartPolicy": "Always",
            "maxRestartAttempts": _RESTARTS,
            "restartBackoffMillis": 10_000,
        }
    return {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": {
            "name": application.name,
            "namespace": application.namespace,
            "labels": labels(application),
        },
        "spec": {
            "deploymentMode": "ClusterMode",
            "pyFiles": main_file(application),
            "driverArgs": arguments(application),
            "sparkConf": dict(sorted(cluster_conf(application).items())),
            "runtimeVersions": {"sparkVersion": application.spark_version},
            "driverSpec": {"podTemplateSpec": _template(driver_pod(application))},
            "executorSpec": {"podTemplateSpec": _template(executor_pod(application))},
            "applicationTolerations": {"resourceRetainPolicy": "OnFailure", "restartConfig": restart},
        },
    }


def _template(pod: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": pod["metadata"], "spec": pod["spec"]}
