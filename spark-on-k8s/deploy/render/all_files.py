"""All files of an application, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from render import apache, kubeflow, spark_submit
from render.application import Application
from render.objects import monitor, objects
from render.pods import driver_pod, executor_pod

_HEAD = "# Rendered from applications/{name}.yaml: python -m render\n"


def files(application: Application) -> Mapping[str, str]:
    """Name to content. `objects.yaml` first, then one of the three ways; `pod-monitor.yaml` where there
    is a Prometheus operator."""
    found = {
        "objects.yaml": _dump(application, *objects(application)),
        spark_submit.DRIVER_FILE: _dump(application, driver_pod(application)),
        spark_submit.EXECUTOR_FILE: _dump(application, executor_pod(application)),
        "spark-submit.sh": spark_submit.script(application),
        "kubeflow.yaml": _dump(application, kubeflow.spark_application(application)),
        "apache.yaml": _dump(application, apache.spark_application(application)),
    }
    if application.monitoring:
        found["pod-monitor.yaml"] = _dump(application, monitor(application))
    return found


def _dump(application: Application, *documents: Mapping[str, Any]) -> str:
    return _HEAD.format(name=application.name) + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Without anchors: these files are read by people."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never an alias."""
        return True
