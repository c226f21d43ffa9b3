"""`spark-submit --master k8s://...` in cluster mode: a script, with the pod templates next to it."""

from __future__ import annotations

import shlex

from render.application import Application
from render.conf import arguments, cluster_conf, main_file

DRIVER_FILE, EXECUTOR_FILE = "driver-pod.yaml", "executor-pod.yaml"


def script(application: Application) -> str:
    """The script. `K8S_MASTER` is the address of the API server; more arguments go to spark-submit."""
    conf = {
        **cluster_conf(application),
        "spark.kubernetes.driver.podTemplateContainerName": "spark-kubernetes-driver",
        "spark.kubernetes.executor.podTemplateContainerName": "spark-kubernetes-executor",
    }
    if application.streaming:
        # One driver at a time on one checkpoint: the second one finds the name taken.
        conf["spark.kubernetes.driver.pod.name"] = f"{application.name}-driver"
    lines = [f"--name {application.name}"]
    lines += [f"--conf {shlex.quote(f'{key}={value}')}" for key, value in sorted(conf.items())]
    lines += [
        f'--conf "spark.kubernetes.driver.podTemplateFile=$folder/{DRIVER_FILE}"',
        f'--conf "spark.kubernetes.executor.podTemplateFile=$folder/{EXECUTOR_FILE}"',
        '"$@"',
        main_file(application),
        *(shlex.quote(one) for one in arguments(application)),
    ]
    body = " \\\n    ".join(['exec spark-submit --master "$K8S_MASTER" --deploy-mode cluster', *lines])
    return f"""\
#!/bin/sh
# Submits {application.name}. Before: kubectl apply -f {application.name}/objects.yaml
#   K8S_MASTER=k8s://https://HOST:PORT sh {application.name}/spark-submit.sh
set -eu
: "${{K8S_MASTER:?is the address of the API server: k8s://https://HOST:PORT}}"
folder=$(cd "$(dirname "$0")" && pwd)
{body}
"""
