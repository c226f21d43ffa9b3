"""`spec.console` of a WaltzCluster: the console, a web application that shows the cluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from waltz_operator.api.base import LIST_SET, Model, rule
from waltz_operator.api.parts import PodTemplate, Resources

HOST_NAME = r"^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?$"

CONSOLE_IMAGE = rule(
    "!has(self.console) || !has(self.console.enabled) || !self.console.enabled || has(self.version) || "
    "has(self.images) && has(self.images.console)",
    "the console needs an image: give version, or images.console",
    "images",
)
CONSOLE_SECRET = rule(
    "!has(self.console) || !has(self.console.enabled) || !self.console.enabled || !has(self.tls) || "
    "!has(self.tls.secrets) || has(self.tls.secrets.console)",
    "the console with your Secrets needs one more: tls.secrets.console",
    "tls",
)


class Console(Model):
    """The console. It changes nothing, and nothing of the log waits for it."""

    enabled: bool = Field(
        default=False,
        description="true: one pod with the console runs, behind the Service <name>-console. Its token is in the Secret "
        "<name>-console-token, which the operator makes. Storage nodes are restarted one by one when this changes, where the "
        "operator or cert-manager issues certificates: their admin port takes that of the console then, and not before.",
    )
    show_data: bool = Field(
        default=False,
        description="true: who has the token sees the data of transactions too. Default: the state of the cluster only.",
    )
    hosts: Annotated[
        tuple[Annotated[str, Field(max_length=253, pattern=HOST_NAME)], ...],
        Field(json_schema_extra=LIST_SET),
    ] = Field(
        default=(),
        description="Names by which browsers call it, besides those of its Service and localhost: of an Ingress.",
        max_length=16,
    )
    resources: Resources = Field(
        default_factory=lambda: Resources(
            requests={"cpu": "20m", "memory": "128Mi"}, limits={"memory": "256Mi"}
        ),
        description="Resources of the console.",
    )
    pod_template: PodTemplate = Field(
        default_factory=PodTemplate, description="What is laid over the pod template of the console."
    )
