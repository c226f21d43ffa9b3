"""The servers, as a person asks for them, and when partitions move between them by load."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from waltz_operator.api.base import Model
from waltz_operator.api.parts import Config, ExternalListener, PodTemplate, Resources


class LoadRebalance(Model):
    """Partitions of the busiest server move to others (docs/operator-changes.md)."""

    window_minutes: Literal[1, 5, 15] = Field(
        default=5,
        description="Time over which load is averaged, in minutes. Nothing moves before every server has had its partitions "
        "for so long, and partitions move once per window at most.",
    )
    minimum_cpu_percent: int = Field(
        default=50,
        description="Nothing moves while the busiest server uses less than this, in percent of a core.",
        ge=5,
        le=100,
    )
    improvement_percent: int = Field(
        default=15,
        description="A move has to lower the load of the busier one of its two servers by this at least, in percent.",
        ge=5,
        le=90,
    )
    cooldown_minutes: int = Field(
        default=60,
        description="A partition that has moved stays where it is for this time, in minutes.",
        ge=1,
        le=10080,
    )
    moves_per_window: int = Field(
        default=2,
        description="Number of partitions that move in one window at most. Two exchange their servers where one alone would "
        "leave a server with more than its share.",
        ge=2,
        le=16,
    )


class Servers(Model):
    """The servers."""

    replicas: int = Field(
        default=2, description="Number of servers; the scale subresource sets it.", ge=0, le=100
    )
    resources: Resources = Field(
        default_factory=lambda: Resources(
            requests={"cpu": "250m", "memory": "512Mi"}, limits={"memory": "1Gi"}
        ),
        description="Resources of each server.",
    )
    config: Config = Field(
        default_factory=dict,
        description="Configuration keys of the server role (docs/configuration.md) that differ from what the operator sets; "
        "those that the operator must know (ports, advertised address, ZooKeeper, TLS) are refused.",
    )
    external_listener: ExternalListener | None = Field(
        default=None,
        description="How clients outside the Kubernetes cluster reach the servers. Default: not at all.",
    )
    drain_seconds: int = Field(
        default=30,
        description="How long a server may take to hand its partitions over when it is stopped, in seconds.",
        ge=5,
        le=3600,
    )
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate, description="What is laid over the pod template of the servers."
    )
    rebalance: LoadRebalance | None = Field(
        default=None,
        description="Move partitions from the busiest server to others by their load. Default: none (each server has its share "
        "of the partitions, whatever they cost).",
    )
