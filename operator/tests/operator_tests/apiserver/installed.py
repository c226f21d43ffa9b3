"""The shipped manifests on the API server of the tests: definitions, role, service account; and the
operator's own token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from operator_tests import yaml_text
from waltz_operator.kube.client import KubeClient, Object
from waltz_operator.kube.errors import KubeConflictError, KubeError, KubeUnavailableError
from waltz_operator.kube.kinds import Kind

ROOT = Path(__file__).resolve().parents[4]
OPERATOR_NAMESPACE = "waltz-system"
NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)
DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False)
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
_OTHERS = {
    kind.kind: kind
    for kind in (
        NAMESPACE,
        DEFINITION,
        SERVICE_ACCOUNT,
        Kind("rbac.authorization.k8s.io/v1", "Role", "roles"),
        Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
        Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False),
        Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    )
}
FILES = (
    "manifests/common/namespace.yaml",
    "manifests/common/service-account.yaml",
    "manifests/common/own-namespace.yaml",
    "manifests/base/cluster-role.yaml",
)


class Administrator(KubeClient):
    """Who installs definitions. While the API server goes from one of them to the next, it turns requests
    away with HTTP 503 before it looks at them; an administrator asks again for up to 10 s."""

    async def _call(self, *arguments: Any, **more: Any) -> Object:
        end = asyncio.get_running_loop().time() + 10
        while True:
            try:
                return await super()._call(*arguments, **more)
            except KubeUnavailableError as error:
                if error.status != 503 or asyncio.get_running_loop().time() >= end:
                    raise
            await asyncio.sleep(0.1)


async def post(
    kube: KubeClient, kind: Kind, body: dict[str, Any], subresource: str | None = None
) -> dict[str, Any]:
    """Create an object of a kind that the operator itself has nothing to do with."""
    namespace = body["metadata"].get("namespace")
    path = kind.path(namespace, body["metadata"]["name"] if subresource else None, subresource)
    return await kube._call("POST", path, None, body)


async def install(kube: KubeClient) -> None:
    """Everything of manifests/base but the Deployment; waits until the definitions are served."""
    documents = [path.read_text() for path in sorted((ROOT / "crds").glob("waltz*.yaml"))]
    documents += [(ROOT / name).read_text() for name in FILES]
    for text in documents:
        for body in yaml_text.documents(text):
            if body["kind"] in _OTHERS:
                await post(kube, _OTHERS[body["kind"]], body)
    for plural in ("waltzclusters", "waltzmigrations"):
        await _served(kube, Kind("waltz.dev/v1alpha1", "", plural))


async def _served(kube: KubeClient, kind: Kind) -> None:
    for _ in range(200):
        try:
            await kube.list(kind, None)
            return
        except KubeError:
            await asyncio.sleep(0.05)  # the API server takes a moment to serve a new definition
    raise TimeoutError(f"{kind.plural} are not served")


async def operator_token(kube: KubeClient) -> str:
    """A token of the operator's ServiceAccount, as its pod has one."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": "waltz-operator", "namespace": OPERATOR_NAMESPACE},
        "spec": {"expirationSeconds": 7200},
    }
    made = await post(kube, SERVICE_ACCOUNT, body, "token")
    return str(made["status"]["token"])


async def make_namespace(kube: KubeClient, name: str) -> None:
    """A namespace with its default ServiceAccount, as a controller would make it."""
    try:
        await post(kube, NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except KubeConflictError:
        return
