"""Names in `metadata`: our group, labels, annotations and finalizer (their only home), and the part that
the operator reads. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP = "waltz.dev"
VERSION = "v1alpha1"
"""What the operator speaks, and what the API server stores (ADR 21)."""
SERVED_VERSIONS = (VERSION, "v1beta1")
"""All of one schema, so that the API server converts by writing another name."""
API_VERSION = f"{GROUP}/{VERSION}"
API_VERSIONS = tuple(f"{GROUP}/{one}" for one in SERVED_VERSIONS)
FINALIZER = f"{GROUP}/operator"
ORPHAN = "orphan"
"""Finalizer of Kubernetes: garbage collection takes the object out of the owners of what it owns first."""
FIELD_MANAGER = "waltz-operator"

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = FIELD_MANAGER
"""Value of `LABEL_MANAGED_BY` on every object of the operator."""
LABEL_GROUP = f"{GROUP}/group"
LABEL_NODE = f"{GROUP}/node"
LABEL_HEADLESS = f"{GROUP}/headless"
LABEL_DECISION = f"{GROUP}/decision"
"""Label of a server's pod: digest of what was decided about it, so that those of one decision keep apart."""
LABEL_CLIENT = f"{GROUP}/client"
"""Label, with the value "true", of pods that may connect to the managed ZooKeeper."""
ZOOKEEPER_MEMBERS = f"{GROUP}/zookeeper-members"
"""Annotation of a pod of the managed ZooKeeper: how many members its ensemble has."""
ZOOKEEPER_LOGIN = f"{GROUP}/zookeeper-login"
"""Annotation of a pod with the operator's credentials for the managed ZooKeeper: who may use what it
creates."""
ZOOKEEPER_ACCESS = f"{GROUP}/zookeeper-access"
"""Annotation of the managed ZooKeeper's NetworkPolicy: who may connect."""

APPLIED_HASH = f"{GROUP}/applied-hash"
TEMPLATE_HASH = f"{GROUP}/template-hash"
BASIS_HASH = f"{GROUP}/basis-hash"
"""Annotation of what carries a pod template: digest of what was decided about the pods. `TEMPLATE_HASH` names
the template that was made of it, there and on the pods."""
TEMPLATE = f"{GROUP}/template"
IMAGE = f"{GROUP}/image"
"""Annotation of a pod: the image of our container as the operator wrote it; an admission webhook may have put
another name of it into the pod."""
DATA_HASH = f"{GROUP}/data-hash"
RESTART_STORAGE = f"{GROUP}/restart-storage"
RESTART_SERVER = f"{GROUP}/restart-server"
RESTART_ZOOKEEPER = f"{GROUP}/restart-zookeeper"
CLUSTER_UID = f"{GROUP}/cluster-uid"
"""Annotation of what holds data: uid of the WaltzCluster that made it, or has taken it over. Not an owner
reference, which garbage collection would follow."""
OPERATED_BY = f"{GROUP}/operated-by"
"""Annotation whose value is an installation of the operator (namespace and name of its Lease): that one works
on the cluster, and no other."""
SKIP_TEARDOWN = f"{GROUP}/skip-teardown"
"""Annotation whose value is the cluster's own name: delete without touching ZooKeeper (its ensemble no longer
exists)."""
RETRY = f"{GROUP}/retry"
"""Annotation of a WaltzMigration: when it has failed, each new value begins it again."""
COPY_MIGRATION = f"{GROUP}/migration"
COPY_PARTITION = f"{GROUP}/partition"
COPY_SOURCE = f"{GROUP}/source"
COPY_TARGET = f"{GROUP}/target"


class ObjectMeta(BaseModel):
    """Of any object. Unknown members are Kubernetes' own business."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @property
    def deleting(self) -> bool:
        """Whether somebody asked for its deletion."""
        return self.deletion_timestamp is not None
