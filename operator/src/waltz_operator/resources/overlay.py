"""A person's piece of a pod template laid over ours, and templates that stay as they are.

Objects are merged; lists whose entries have a name are merged by it (mounts by their path, ports by their
number); other lists, and everything below `affinity`, are replaced. Labels that objects are found by are
never overridden.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import BASIS_HASH, DATA_HASH, IMAGE, TEMPLATE, TEMPLATE_HASH
from waltz_operator.api.parts import PodTemplate
from waltz_operator.resources.common import digest
from waltz_operator.resources.inputs import Obj, RenderInputs

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "hostAliases": "ip",
}
_REPLACED = frozenset({"affinity"})


def overlaid(template: Obj, wanted: PodTemplate) -> Obj:
    """The pod template with the person's laid over it."""
    metadata = template["metadata"]
    result: Obj = {
        "metadata": {
            "labels": {**wanted.metadata.labels, **metadata.get("labels", {})},
            "annotations": {**wanted.metadata.annotations, **metadata.get("annotations", {})},
        },
        "spec": _merged(template["spec"], wanted.spec),
    }
    return result


def _merged(ours: Any, theirs: Any, key: str = "") -> Any:
    if key in _REPLACED:
        return theirs
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        result = dict(ours)
        for name, value in theirs.items():
            result[name] = _merged(result[name], value, name) if name in result else value
        return result
    if isinstance(ours, list) and isinstance(theirs, list) and key in _KEYS:
        return _merged_list(ours, theirs, _KEYS[key])
    return theirs


def _merged_list(ours: list[Any], theirs: list[Any], key: str) -> list[Any]:
    known = {entry[key]: position for position, entry in enumerate(ours)}
    result = list(ours)
    for entry in theirs:
        said = entry.get(key) if isinstance(entry, Mapping) else None
        position = known.get(said) if isinstance(said, str | int) else None
        if position is None:
            result.append(entry)
        else:
            result[position] = _merged(result[position], entry)
    return result


def decision(cluster: WaltzCluster, basis: object) -> str:
    """The digest of what is decided about pods."""
    return digest({"cluster": cluster.metadata.name, "basis": basis})


def settled(
    cluster: WaltzCluster,
    inputs: RenderInputs,
    kind: str,
    name: str,
    basis: object,
    template: Obj,
    *,
    before: object = None,
) -> tuple[Obj, dict[str, str]]:
    """The template to apply and the annotations of the object that carries it.

    `basis`: everything that is decided about the pods. While its digest is what the live object says, its
    template is kept, whatever this version of the operator would make of it; the annotation has it as it was
    applied. `before`: the same in the form of earlier operators, where that is another one. Their objects
    have no digest but this one, and a template that is made now is named by it, so that neither an upgrade of
    the operator nor the way back restarts a pod.
    """
    decided = decision(cluster, basis)
    named = decided if before is None else decision(cluster, before)
    live = _annotations(inputs, kind, name)
    same = live[BASIS_HASH] == decided if BASIS_HASH in live else live.get(TEMPLATE_HASH) == named
    hash_ = live.get(TEMPLATE_HASH, named) if same else named
    kept = _kept(live) if same else None
    if kept is None:
        annotations = {
            **template["metadata"].get("annotations", {}),
            **_image(template),
            TEMPLATE_HASH: hash_,
        }
        kept = {**template, "metadata": {**template["metadata"], "annotations": annotations}}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return kept, {TEMPLATE_HASH: hash_, BASIS_HASH: decided, TEMPLATE: text}


def _image(template: Obj) -> dict[str, str]:
    """The annotation with the image of our container, which is the first one."""
    image = template["spec"]["containers"][0].get("image")
    return {IMAGE: image} if isinstance(image, str) else {}  # a person's piece may take it away


def _kept(annotations: Mapping[str, str]) -> Obj | None:
    if TEMPLATE not in annotations:
        return None
    try:
        template = json.loads(annotations[TEMPLATE])
    except ValueError:
        return None
    return template if isinstance(template, dict) and {"metadata", "spec"} <= template.keys() else None


def settled_data(
    cluster: WaltzCluster, inputs: RenderInputs, name: str, basis: object, data: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The same for the configuration that the pods mount: contents and annotations of a ConfigMap. Contents
    that somebody else has changed are not kept."""
    hash_ = digest({"cluster": cluster.metadata.name, "basis": basis})
    annotations = _annotations(inputs, "ConfigMap", name)
    if annotations.get(TEMPLATE_HASH) == hash_:
        live = inputs.live["ConfigMap", name].get("data")
        if isinstance(live, Mapping) and digest(dict(live)) == annotations.get(DATA_HASH):
            data = {str(key): str(value) for key, value in live.items()}
    return data, {TEMPLATE_HASH: hash_, DATA_HASH: digest(data)}


def _annotations(inputs: RenderInputs, kind: str, name: str) -> Mapping[str, str]:
    live = inputs.live.get((kind, name), {})
    found = live.get("metadata", {}).get("annotations")
    return found if isinstance(found, Mapping) else {}
