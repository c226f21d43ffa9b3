"""What the metrics of a service mean, and how Prometheus gets them. Pure.

The names are those of release 0.13.2, without group and partition (`session-id` of
`waltz-storage.partition-3.session-id`); JSON and Graphite use them as they are. Prometheus names follow from
them (`waltz_storage_session_id{partition="3"}`): a group name repeated inside the name is left out; counters
and meters end in `_total`, timers are histograms in `_seconds`, a text becomes `…_info{value="…"} 1`, a list
or mapping becomes its size under `…_size`. A meaning may give another name, for a base unit or the right
kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_PARTITION_PART = re.compile(r"partition-(\d+)\Z")
_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


class Meaning(NamedTuple):
    """`help`: one sentence. `prometheus`: its name there, without `_total`. `counts`: it only grows, though
    0.13.2 publishes it as a gauge. `scale`: what the value is multiplied with, to be in a base unit. `text`:
    the value is a text. `labels`: those that distinguish it from others of the same Prometheus name."""

    help: str
    prometheus: str | None = None
    counts: bool = False
    scale: float = 1.0
    text: bool = False
    labels: Mapping[str, str] = MappingProxyType({})


Meanings = Mapping[str, Meaning]
"""By name without group and partition."""


class Place(NamedTuple):
    """Where a metric belongs: the derived Prometheus name, its labels, and its name among the meanings."""

    prometheus: str
    labels: dict[str, str]
    name: str


def place_of(full_name: str) -> Place:
    """Of `waltz-storage.partition-3.session-id`."""
    labels: dict[str, str] = {}
    parts: list[str] = []
    for part in full_name.split("."):
        match = _PARTITION_PART.match(part)
        if match:
            labels["partition"] = match[1]
            continue
        if parts and part.startswith(parts[0] + "-"):
            part = part[len(parts[0]) + 1 :]
        parts.append(part)
    return Place(_NOT_A_NAME.sub("_", "_".join(parts)), labels, full_name.rpartition(".")[2])
