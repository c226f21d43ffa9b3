"""A desired Kubernetes object with the digest of all that we say about it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from waltz_operator.api.metadata import APPLIED_HASH, BASIS_HASH, TEMPLATE, TEMPLATE_HASH
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


def keeping_template(one: Rendered, live: Mapping[str, Any]) -> Rendered:
    """The desired Deployment with the pod template that the live one was applied with; as it is where that
    cannot be read."""
    found = (live.get("metadata") or {}).get("annotations") or {}
    kept = {key: found[key] for key in (TEMPLATE_HASH, BASIS_HASH, TEMPLATE) if key in found}
    try:
        template = json.loads(kept.get(TEMPLATE, ""))
    except ValueError:
        return one
    metadata = one.body["metadata"]
    annotations = {
        key: value
        for key, value in metadata["annotations"].items()
        if key not in (APPLIED_HASH, TEMPLATE_HASH, BASIS_HASH, TEMPLATE)
    }
    return rendered(
        {
            **one.body,
            "metadata": {**metadata, "annotations": annotations | kept},
            "spec": {**one.body["spec"], "template": template},
        }
    )


def template_hash_of(body: Mapping[str, Any]) -> str:
    """The hash on the pod template of a StatefulSet or Deployment; empty when there is none."""
    template = (body.get("spec") or {}).get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(TEMPLATE_HASH, ""))
