"""The copy Job of an action: its arguments, and annotations by which the operator knows it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from waltz_admin.tree import admin_endpoint, parse_connect_string
from waltz_operator.api.metadata import COPY_MIGRATION, COPY_PARTITION, COPY_SOURCE, COPY_TARGET
from waltz_operator.api.security import TlsMode
from waltz_operator.kube.errors import KubeError
from waltz_operator.model.actions import StartCopyJob
from waltz_operator.model.snapshot import TreeView
from waltz_operator.resources import RenderInputs, copy_job
from waltz_operator.resources.common import TLS_DIRECTORY
from waltz_operator.run.observe import Observation


def job_renderer(operator_image: str) -> Callable[[StartCopyJob, Observation], dict[str, Any]]:
    """`operator_image`: what the Job runs."""

    def render(action: StartCopyJob, observation: Observation) -> dict[str, Any]:
        snapshot = observation.snapshot
        if not isinstance(snapshot.tree, TreeView):
            raise KubeError("the cluster's key is not known")
        job = dict(
            copy_job(
                snapshot.cluster,
                RenderInputs(
                    operator_image=operator_image, images=snapshot.images, tls_digests=snapshot.tls_digests
                ),
                migration=action.migration,
                partition=action.partition,
                arguments=copy_arguments(action, snapshot.tree, snapshot.cluster.spec.tls.mode),
                annotations={
                    COPY_MIGRATION: action.migration,
                    COPY_PARTITION: str(action.partition),
                    COPY_SOURCE: action.source,
                    COPY_TARGET: action.target,
                },
            )
        )
        job["metadata"] = {**job["metadata"], "name": action.name}
        return job

    return render


def copy_arguments(action: StartCopyJob, tree: TreeView, mode: TlsMode) -> list[str]:
    """Of `waltz-operator`; see `copy_partition`."""
    tls = ["--plaintext"] if mode is TlsMode.DISABLED else ["--tls-directory", TLS_DIRECTORY]
    return [
        "copy-partition",
        "--cluster-key",
        str(tree.cluster_key),
        "--partitions",
        str(tree.num_partitions),
        "--partition",
        str(action.partition),
        "--source",
        str(admin_endpoint(action.source, action.source_admin_port)),
        "--target",
        str(admin_endpoint(action.target, action.target_admin_port)),
        "--target-storage-port",
        str(parse_connect_string(action.target).port),
        "--rate-limit",
        str(action.rate_limit_bytes),
        *tls,
    ]
