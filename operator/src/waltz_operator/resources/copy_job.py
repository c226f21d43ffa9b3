"""The Job that copies and verifies one partition, in a pod of its own and at its own pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import COPY_PARTITION
from waltz_operator.api.topology import copy_job_name
from waltz_operator.resources.common import MIGRATION, container, labels, make, pod_basics, resources_of
from waltz_operator.resources.files import certificates, mounted, scratch
from waltz_operator.resources.inputs import Obj, RenderInputs
from waltz_operator.resources.overlay import overlaid


def copy_job(
    cluster: WaltzCluster,
    inputs: RenderInputs,
    *,
    migration: str,
    partition: int,
    arguments: Sequence[str],
    annotations: Mapping[str, str] | None = None,
) -> Obj:
    """`arguments`: of `waltz-operator`, which runs in it. One attempt: the planner decides about the next
    one."""
    wanted = cluster.spec.copy_jobs
    volumes, mounts = mounted(certificates(cluster, "operator"), scratch())
    main = container(
        cluster,
        "copy",
        inputs.operator_image,
        args=list(arguments),
        resources=resources_of(wanted.resources.requests, wanted.resources.limits),
        volumeMounts=mounts,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="FallbackToLogsOnError",
    )
    names = {"migration": migration, "partition": str(partition)}
    template = {
        "metadata": {"labels": labels(cluster, MIGRATION, **names)},
        "spec": {
            **pod_basics(cluster, inputs),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "containers": [main],
            "volumes": volumes,
        },
    }
    return make(
        cluster,
        "batch/v1",
        "Job",
        copy_job_name(cluster, migration, partition),
        MIGRATION,
        {"spec": {"backoffLimit": 0, "template": overlaid(template, wanted.pod_template)}},
        annotations={COPY_PARTITION: str(partition), **(annotations or {})},
        more=names,
    )
