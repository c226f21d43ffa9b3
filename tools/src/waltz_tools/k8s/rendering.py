"""`waltz k8s render`: the objects of a cluster without an operator, for people who apply manifests
themselves.

What an operator would do in ZooKeeper and on the admin ports is then theirs (`waltz zk`, `waltz storage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import CLUSTER_UID
from waltz_operator.api.parse import parse_cluster
from waltz_operator.api.security import TlsMode
from waltz_operator.api.validate import validate
from waltz_operator.model.actions import ApplyObject
from waltz_operator.plan.certificates import certificate_steps
from waltz_operator.resources import RenderInputs, desired_objects
from waltz_operator.tls.secrets import TlsSecrets, material_digests, secret_data
from waltz_tools.errors import ToolError, UsageError

_MAX_STEPS = 5


def read_cluster(path: Path, namespace: str) -> dict[str, Any]:
    """The one WaltzCluster in a YAML file. ToolError, one line."""
    try:
        documents = [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ToolError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    found = [one for one in documents if isinstance(one, dict) and one.get("kind") == "WaltzCluster"]
    if len(found) != 1:
        raise ToolError(f"{path} must hold exactly one WaltzCluster, not {len(found)}")
    body: dict[str, Any] = found[0]
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ToolError(f"{path}: metadata.name is required")
    body["metadata"] = {"namespace": namespace, **metadata}
    return body


def render(body: Mapping[str, Any], *, certificates: bool, now: float) -> list[Mapping[str, Any]]:
    """All objects, in the order in which they can be applied; with `certificates` the Secrets that an
    operator would make.

    Owner references, and the uid of the cluster, are left out: there is no object that owns them.
    ResourceError, ToolError: one line for a person.
    """
    metadata = {"uid": "", "generation": 1, "resourceVersion": "", **body["metadata"]}
    cluster = parse_cluster({**body, "metadata": metadata, "status": {}})
    problems = validate(cluster.spec)
    if problems:
        raise ToolError("; ".join(f"{problem.path}: {problem.text}" for problem in problems))
    self_signed = cluster.spec.tls.mode is TlsMode.SELF_SIGNED
    if self_signed and not certificates:
        raise UsageError(
            "tls.mode is SelfSigned and no operator makes certificates: pass --certificates (they hold private keys), or choose "
            "tls.mode Secret, CertManager or Disabled"
        )
    secrets = _certificates(cluster, now) if self_signed else []
    by_name = {one["metadata"]["name"]: one for one in secrets}
    digests = {
        role.role: material_digests(secret_data(by_name.get(role.secret)))
        for role in topology.tls_roles(cluster)
    }
    inputs = RenderInputs(tls_digests={role: found for role, found in digests.items() if found is not None})
    return [_unowned(one) for one in (*secrets, *desired_objects(cluster, inputs))]


def _certificates(cluster: WaltzCluster, now: float) -> list[Mapping[str, Any]]:
    """The Secrets as the operator would make them, pass by pass."""
    present = TlsSecrets()
    made: dict[str, Mapping[str, Any]] = {}
    keys = {role.secret: role.role for role in topology.tls_roles(cluster)}
    for _ in range(_MAX_STEPS):
        steps = certificate_steps(cluster, present, now, settled=False)
        bodies = [step.body for step in steps if isinstance(step, ApplyObject)]
        if not bodies:
            break
        for body in bodies:
            name = str(body["metadata"]["name"])
            made[name] = body
            present = TlsSecrets({**present.contents, keys.get(name, name): secret_data(body)})
    return list(made.values())


def _unowned(body: Mapping[str, Any]) -> Mapping[str, Any]:
    left_out = ("annotations", "ownerReferences", "resourceVersion")
    metadata = {key: value for key, value in body["metadata"].items() if key not in left_out}
    said = {
        key: value for key, value in (body["metadata"].get("annotations") or {}).items() if key != CLUSTER_UID
    }
    if said:
        metadata["annotations"] = said
    return {**body, "metadata": metadata}
