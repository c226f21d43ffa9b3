"""A desired Kubernetes object with the digest of all that we say about it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from waltz_operator.api.metadata import APPLIED_HASH, TEMPLATE_HASH
from waltz_operator.model.snapshot import ObjectKey


@dataclass(frozen=True, slots=True)
class Rendered:
    """A desired object. `digest` is what its applied-hash is to be; `template_hash` of its pod template,
    when it has one."""

    key: ObjectKey
    body: Mapping[str, Any]
    digest: str
    template_hash: str = ""


def rendered(body: Mapping[str, Any]) -> Rendered:
    """A desired object with its digest put on."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
    metadata = dict(body["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), APPLIED_HASH: digest}
    return Rendered(
        ObjectKey(str(body["kind"]), str(metadata["name"])),
        {**body, "metadata": metadata},
        digest,
        template_hash_of(body),
    )


def template_hash_of(body: Mapping[str, Any]) -> str:
    """The hash on the pod template of a StatefulSet or Deployment; empty when there is none."""
    template = (body.get("spec") or {}).get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(TEMPLATE_HASH, ""))
