"""Which Kubernetes objects have to be written: the desired ones against those that are there. Pure.

Each object that is applied carries the digest of all that we say about it. It is written again when that
digest is another one, or when the live object no longer holds what we said (somebody changed a field of
ours). Nothing is written when neither is so, or when the live object is what the last write has become: an
admission webhook changed a field in it, or the API server dropped one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Final

from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import KubeView, ObjectKey, ObjectView, Override
from waltz_operator.resources.common import digest

KEPT_KINDS = frozenset({"StatefulSet", "Deployment", "PersistentVolumeClaim", "Secret", "Job", "Pod"})
"""Never deleted because they are not rendered: each goes by a rule of its own, or not at all."""
_MERGE_KEYS = ("name", "containerPort", "port", "mountPath", "type", "key", "topologyKey", "ip", "path")

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?([0-9]+\.?[0-9]*|\.[0-9]+))(?P<unit>[numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,2})"
)
_FACTORS: Final[Mapping[str, Fraction]] = {
    **{unit: Fraction(1000) ** power for power, unit in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_LARGEST: Final = Fraction(2**63 - 1)
"""A quantity above it is stored as this one."""


def difference(wanted: Rendered, live: ObjectView | None, known: Override | None = None) -> str:
    """Why the object has to be applied; empty when it need not be. `known`: what the last write of it has
    become."""
    if live is None:
        return "it is not there"
    if live.deleting or is_overridden(wanted, live, known):
        return ""  # it has to go first; the next write would become the same
    if live.applied_hash != wanted.digest:
        return "it differs from the specification"
    if live.body is not None:
        path = lost(wanted.body, live.body)
        if path is not None:
            return f"{path} was changed by another writer"
    return ""


def is_overridden(wanted: Rendered, live: ObjectView, known: Override | None) -> bool:
    """Whether the live object is what the last write of this very object has become, in which not all of it
    was stored."""
    if known is None or (known.uid, known.digest) != (live.uid, wanted.digest) or live.body is None:
        return False
    return overrides(wanted.body, live.body) == known.fields


def overrides(wanted: Mapping[str, object], live: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Each place where `live` does not hold what `wanted` says, with the digest of what is there instead."""
    return tuple((path, digest(value)) for path, value in _losses(wanted, live, ""))


def surplus(wanted: Iterable[Rendered], kube: KubeView) -> list[tuple[ObjectKey, ObjectView]]:
    """Objects that we applied, that are no longer rendered and may be deleted without further proof."""
    keys = {one.key for one in wanted}
    return [
        (key, view)
        for key, view in sorted(kube.objects.items())
        if key not in keys and key.kind not in KEPT_KINDS and view.applied_hash and not view.deleting
    ]


def lost(wanted: object, live: object) -> str | None:
    """The first place where `live` does not hold what `wanted` says; None when it holds all of it. What
    only `live` has, and what the server does not store (empty values, null), is no difference."""
    return next((path for path, _ in _losses(wanted, live, "")), None)


def _losses(wanted: object, live: object, path: str) -> Iterator[tuple[str, object]]:
    """Each such place, with what is there."""
    if wanted is None or wanted in ({}, [], ""):
        return
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            yield path or "it", live
            return
        for key, value in wanted.items():
            theirs = live.get(key)
            if value != theirs and key != "stringData":  # stored under data, encoded
                yield from _losses(value, theirs, f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if not isinstance(live, Sequence) or isinstance(live, str):
            yield path, live
        else:
            yield from _losses_of_list(wanted, live, path)
    elif not _equal(wanted, live):
        yield path, live


def _losses_of_list(
    wanted: Sequence[object], live: Sequence[object], path: str
) -> Iterator[tuple[str, object]]:
    key = _merge_key(wanted)
    if key is None:
        if len(wanted) != len(live):
            yield path, live
            return
        for i, (mine, theirs) in enumerate(zip(wanted, live, strict=True)):
            if mine != theirs:
                yield from _losses(mine, theirs, f"{path}[{i}]")
        return
    found = {one[key]: one for one in live if isinstance(one, Mapping) and key in one}
    for one in wanted:
        if isinstance(one, Mapping):
            yield from _losses(one, found.get(one[key]), f"{path}[{one[key]}]")


def _merge_key(values: Sequence[object]) -> str | None:
    """The member by which the entries of a list are distinguished, when there is one."""
    maps = [value for value in values if isinstance(value, Mapping)]
    if len(maps) != len(values):
        return None
    for key in _MERGE_KEYS:
        held = [one.get(key) for one in maps]
        if all(isinstance(one, str | int) for one in held) and len(set(held)) == len(held):
            return key
    return None


def _equal(wanted: object, live: object) -> bool:
    if wanted == live or str(wanted) == str(live):
        return True
    if isinstance(wanted, bool) or isinstance(live, bool) or live is None:
        return not wanted and live is None  # false and 0 may be left out
    mine, theirs = _milli(str(wanted)), _milli(str(live))  # 1024Mi and 1Gi, 0.5 and 500m
    if mine is None or theirs is None:
        return not wanted and live is None
    return mine == theirs


def _milli(text: str) -> int | None:
    """A quantity in thousandths, exactly, as the API server stores it: rounded up to whole ones, and no more
    than it can hold. None for what is no quantity."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    unit = found["unit"]
    factor = _FACTORS[unit] if unit in _FACTORS else Fraction(f"1{unit}")
    return ceil(min(Fraction(found["number"]) * factor, _LARGEST) * 1000)
