"""The CustomResourceDefinitions: schemas, columns, short names, subresources. `crds/*.yaml` are made of
them."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from pydantic import BaseModel

from waltz_operator.api.base import MAX_CLUSTER_NAME
from waltz_operator.api.cluster import WaltzClusterSpec
from waltz_operator.api.cluster_status import WaltzClusterStatus
from waltz_operator.api.metadata import API_VERSIONS, GROUP, SERVED_VERSIONS, VERSION
from waltz_operator.api.migration import WaltzMigrationSpec, WaltzMigrationStatus
from waltz_operator.api.schema import structural
from waltz_operator.api.topology import CLUSTER_JOB, MAX_LABEL

Document = dict[str, Any]


class Column(NamedTuple):
    """One column of `kubectl get`; `wide`: only with `-o wide`."""

    name: str
    type: str
    path: str
    description: str
    wide: bool = False

    def document(self) -> Document:
        """As the definition has it."""
        found: Document = {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
        }
        return {**found, "priority": 1} if self.wide else found


_CLUSTER_COLUMNS = (
    Column(
        "Ready",
        "string",
        ".status.conditions[?(@.type=='Available')].status",
        "Whether every partition takes writes.",
    ),
    Column("Partitions", "integer", ".spec.partitions", "Number of partitions."),
    Column("Replicas", "string", ".status.replicas", "Caught-up copies of all copies."),
    Column("Servers", "string", ".status.serverCounts", "Ready servers of all servers."),
    Column("Version", "string", ".status.runningVersions", "Releases that the pods run."),
    Column("Reason", "string", ".status.reason", "The one word that matters most now."),
    Column("Operation", "string", ".status.operation.kind", "What the operator is at.", wide=True),
    Column("Step", "string", ".status.operation.step", "The step that is due or under way.", wide=True),
    Column("Worst lag", "integer", ".status.partitions.worstLag", "Transactions behind.", wide=True),
    Column("Console", "boolean", ".status.console.ready", "Whether the console listens.", wide=True),
    Column("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
)
_MIGRATION_COLUMNS = (
    Column("Cluster", "string", ".spec.cluster", "The cluster."),
    Column("What", "string", ".status.what", "What it does."),
    Column("Phase", "string", ".status.phase", "How far it is."),
    Column("Progress", "string", ".status.progress", "Partitions done of all partitions."),
    Column("ETA", "integer", ".status.etaSeconds", "Time it will still take, seconds."),
    Column("Reason", "string", ".status.reason", "The one word that matters most now."),
    Column("Message", "string", ".status.message", "What it waits for.", wide=True),
    Column("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
)
_SCALE = {
    "specReplicasPath": ".spec.servers.replicas",
    "statusReplicasPath": ".status.servers.replicas",
    "labelSelectorPath": ".status.servers.selector",
}
_NAME_RULE = {
    "rule": f"self.metadata.name.size() <= {MAX_CLUSTER_NAME} && "
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "message": f"the name must have at most {MAX_CLUSTER_NAME} lower-case letters, digits and dashes and begin with a letter: "
    "names of pods and Services are made of it",
}

_REFUSED = (
    "(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, "
    "c.type == 'Valid' && c.status == 'False' && c.reason == 'RefusedChange'))"
)


def _has_volume(of: str) -> str:
    return f"(has({of}.spec.storage.journal) && has({of}.spec.storage.journal.volume))"


_SHRINK = "a volume cannot shrink; only a size that was refused (condition Valid, reason RefusedChange) can be lowered again"
_SIZE_RULES = [
    {
        "rule": "quantity(self.spec.storage.size).compareTo(quantity(oldSelf.spec.storage.size)) >= 0 || "
        + _REFUSED,
        "message": _SHRINK,
        "fieldPath": ".spec.storage.size",
    },
    {
        "rule": "!has(self.spec.storage.groups) || !has(oldSelf.spec.storage.groups) || self.spec.storage.groups.all(g, "
        "!has(g.size) || oldSelf.spec.storage.groups.all(o, o.name != g.name || !has(o.size) || "
        f"quantity(g.size).compareTo(quantity(o.size)) >= 0)) || {_REFUSED}",
        "message": _SHRINK,
        "fieldPath": ".spec.storage.groups",
    },
    {
        "rule": f"!{_has_volume('self')} || !{_has_volume('oldSelf')} || "
        "quantity(self.spec.storage.journal.volume.size)"
        f".compareTo(quantity(oldSelf.spec.storage.journal.volume.size)) >= 0 || {_REFUSED}",
        "message": _SHRINK,
        "fieldPath": ".spec.storage.journal",
    },
]
"""A volume never shrinks. What the operator refuses (a storage class that does not let it grow) must not be a
size that can't be taken back, so these rules see the status, and are those of the whole object."""

_MIGRATION_NAME_RULE = {
    "rule": f"self.metadata.name.size() <= {MAX_LABEL}",
    "message": f"the name must have at most {MAX_LABEL} characters: it is a label of the copy jobs",
}

_MIGRATION_OWN_NAME_RULE: Document = {
    "rule": f"oldSelf.hasValue() || self.metadata.name != '{CLUSTER_JOB}'",
    "message": f"the name {CLUSTER_JOB} is the operator's own: copy jobs of the cluster's changes have it",
    "optionalOldSelf": True,  # one that was made before this rule can be changed
}


def cluster_definition() -> Document:
    """The CustomResourceDefinition of WaltzCluster."""
    return _definition(
        "WaltzCluster",
        "waltzclusters",
        "wc",
        "A Waltz cluster: storage nodes, servers and their place in ZooKeeper.",
        (WaltzClusterSpec, "The desired cluster."),
        (WaltzClusterStatus, "What the operator saw last and what it is at."),
        _CLUSTER_COLUMNS,
        scale=_SCALE,
        rules=[_NAME_RULE, *_SIZE_RULES],
    )


def migration_definition() -> Document:
    """The CustomResourceDefinition of WaltzMigration."""
    return _definition(
        "WaltzMigration",
        "waltzmigrations",
        "wm",
        "Copies of partitions that change their storage node, while writes continue.",
        (WaltzMigrationSpec, "The desired migration. What it does is fixed when it is created."),
        (WaltzMigrationStatus, "What the operator saw last and how far it is."),
        _MIGRATION_COLUMNS,
        rules=[_MIGRATION_NAME_RULE, _MIGRATION_OWN_NAME_RULE],
    )


def _definition(
    kind: str,
    plural: str,
    short: str,
    description: str,
    spec: tuple[type[BaseModel], str],
    status: tuple[type[BaseModel], str],
    columns: tuple[Column, ...],
    *,
    scale: Document | None = None,
    rules: list[Document] | None = None,
) -> Document:
    schema: Document = {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{' or '.join(API_VERSIONS)}."},
            "kind": {"type": "string", "description": f"{kind}."},
            "metadata": {"type": "object"},
            "spec": structural(*spec),
            "status": structural(*status),
        },
    }
    if rules:
        schema["x-kubernetes-validations"] = rules
    versions: list[Document] = [
        {
            "name": name,
            "served": True,
            "storage": name == VERSION,
            "schema": {"openAPIV3Schema": copy.deepcopy(schema)},  # or YAML refers to it by an anchor
            "subresources": {"status": {}, **({"scale": dict(scale)} if scale else {})},
            "additionalPrinterColumns": [column.document() for column in columns],
        }
        for name in SERVED_VERSIONS
    ]
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
        "categories": ["waltz"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "waltz-operator"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "conversion": {"strategy": "None"},
            "versions": versions,
        },
    }


DEFINITIONS = {
    "waltzclusters.waltz.dev.yaml": cluster_definition,
    "waltzmigrations.waltz.dev.yaml": migration_definition,
}
"""File below `crds/`: what makes it."""
