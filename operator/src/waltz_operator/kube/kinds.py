"""The resources the operator touches, by kind: where each lives in the API. Fixed, so no discovery is needed
(nor permitted to it)."""

from dataclasses import dataclass

from waltz_operator.api.metadata import API_VERSION
from waltz_operator.kube.errors import KubeError


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource. `api_version` as in manifests, `plural` as in paths."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of a collection or an object; all namespaces when `namespace` is None."""
        base = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        if self.namespaced and namespace is not None:
            base += f"/namespaces/{namespace}"
        base += f"/{self.plural}"
        if name is not None:
            base += f"/{name}"
        return f"{base}/{subresource}" if subresource is not None else base


WALTZ_CLUSTER = Kind(API_VERSION, "WaltzCluster", "waltzclusters")
WALTZ_MIGRATION = Kind(API_VERSION, "WaltzMigration", "waltzmigrations")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
POD = Kind("v1", "Pod", "pods")
PVC = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SECRET = Kind("v1", "Secret", "secrets")
SERVICE = Kind("v1", "Service", "services")
ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
JOB = Kind("batch/v1", "Job", "jobs")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
POD_DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
SERVICE_MONITOR = Kind("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors")
POD_MONITOR = Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
CERTIFICATE = Kind("cert-manager.io/v1", "Certificate", "certificates")

ALL = (
    WALTZ_CLUSTER,
    WALTZ_MIGRATION,
    CONFIG_MAP,
    EVENT,
    POD,
    PVC,
    SECRET,
    SERVICE,
    ENDPOINT_SLICE,
    DEPLOYMENT,
    STATEFUL_SET,
    JOB,
    LEASE,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    STORAGE_CLASS,
    SERVICE_MONITOR,
    POD_MONITOR,
    CERTIFICATE,
)
EXTENSIONS = (CERTIFICATE, POD_MONITOR, SERVICE_MONITOR)
"""Defined by others: where the definition is not installed there are none of them."""
OPTIONAL = (*EXTENSIONS, ENDPOINT_SLICE)
"""Done without where they are not there, or where a role that is older than this operator does not permit
them."""

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in ALL}


def kind_of(api_version: str, kind: str) -> Kind:
    """The resource behind `apiVersion` and `kind` of a manifest; KubeError for one the operator does not
    know."""
    try:
        return _BY_NAME[api_version, kind]
    except KeyError:
        raise KubeError(f"the operator does not know {api_version} {kind}") from None
