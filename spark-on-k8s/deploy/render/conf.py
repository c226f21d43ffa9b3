"""Settings of Spark: the same for every way of submitting. Values are texts, as Spark takes them."""

from __future__ import annotations

from render.application import Application
from render.pods import OPTIONS_FILE, SECRETS_FOLDER
from waltz_spark.job import OPTIONS_FILE as OPTIONS_VARIABLE


def common_conf(application: Application) -> dict[str, str]:
    """What no way of submitting has fields of its own for. The application's own settings win."""
    conf = {
        f"spark.kubernetes.driverEnv.{OPTIONS_VARIABLE}": OPTIONS_FILE,
        "spark.kubernetes.executor.podNamePrefix": application.name,
        "spark.kubernetes.memoryOverheadFactor": f"{application.memory_overhead_factor:g}",
        "spark.ui.enabled": str(application.monitoring).lower(),
    }
    if application.monitoring:
        conf |= {
            "spark.ui.prometheus.enabled": "true",
            "spark.sql.streaming.metricsEnabled": "true",
            "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
            "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
            "spark.metrics.namespace": application.name,
        }
    return {**conf, **application.conf}


def cluster_conf(application: Application) -> dict[str, str]:
    """All of it, for what takes settings only."""
    executor, driver = application.executor, application.driver
    conf = {
        "spark.kubernetes.namespace": application.namespace,
        "spark.kubernetes.container.image": application.image,
        "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
        "spark.kubernetes.authenticate.driver.serviceAccountName": application.account,
        "spark.driver.cores": str(driver.cores),
        "spark.driver.memory": driver.memory,
        "spark.kubernetes.driver.request.cores": driver.core_request,
        "spark.executor.instances": str(executor.instances),
        "spark.executor.cores": str(executor.cores),
        "spark.executor.memory": executor.memory,
        "spark.kubernetes.executor.request.cores": executor.core_request,
    }
    if driver.core_limit is not None:
        conf["spark.kubernetes.driver.limit.cores"] = driver.core_limit
    if executor.core_limit is not None:
        conf["spark.kubernetes.executor.limit.cores"] = executor.core_limit
    return {**conf, **common_conf(application)}


def main_file(application: Application) -> str:
    """The program, in the image."""
    return f"local://{application.main}"


def arguments(application: Application) -> list[str]:
    """Of the program; passwords are read from files."""
    secrets = [f"--secret={name}={SECRETS_FOLDER}/{name}" for name in application.secret_option_names]
    return [*application.arguments, *secrets]
