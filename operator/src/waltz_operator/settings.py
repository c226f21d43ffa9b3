"""Settings of the operator process: by options of the command line, else by the environment of its pod."""

from __future__ import annotations

import os
import re
import secrets
import socket
from dataclasses import dataclass, field

from waltz_operator.resources.images import NAMES, ImageDefaults

SERVICE_ACCOUNT_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
DEFAULT_NAMESPACE = "waltz-system"
DEFAULT_HTTP_PORT = 8080
_DIGEST = re.compile(rf"({'|'.join(NAMES.values())}):[0-9.]+@sha256:[0-9a-f]{{64}}\Z")


class SettingsError(Exception):
    """A setting of the operator cannot be used; one line for a person."""

    retriable = False
    user_error = True


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """`images`: see `image_defaults`. `namespaces`: the ones to work in; empty = all. Times in seconds.

    `resync_seconds`: every object is looked at again after so long, whatever happens. `identity`: this
    process, in the Lease and in Events. `operator_image`: what copy jobs run.
    """

    namespaces: tuple[str, ...] = ()
    kubeconfig: str | None = None
    lease_namespace: str = DEFAULT_NAMESPACE
    lease_name: str = "waltz-operator"
    identity: str = "waltz-operator"
    operator_image: str = ""
    http_host: str = ""
    http_port: int = DEFAULT_HTTP_PORT
    resync_seconds: float = 60.0
    concurrent_reconciles: int = 8
    log_level: str = "INFO"
    log_json: bool = False
    images: ImageDefaults = field(default_factory=ImageDefaults)


def image_defaults() -> ImageDefaults:
    """Where images come from that follow from a version, by the environment: `WALTZ_IMAGE_REGISTRY`,
    `WALTZ_IMAGE_DIGESTS` (`waltz-server:0.1.0@sha256:…`, separated by commas), `WALTZ_IMAGE_PULL_SECRETS`
    (names, separated by commas). SettingsError."""
    digests = {}
    for one in _listed("WALTZ_IMAGE_DIGESTS"):
        name, _, digest = one.partition("@")
        if not _DIGEST.match(one):
            raise SettingsError(
                f"WALTZ_IMAGE_DIGESTS has {one!r}: an entry is a name, a version and a digest, as "
                "waltz-server:0.1.0@sha256:…"
            )
        digests[name] = digest
    registry = os.environ.get("WALTZ_IMAGE_REGISTRY", "").strip().rstrip("/")
    return ImageDefaults(registry, digests, _listed("WALTZ_IMAGE_PULL_SECRETS"))


def _listed(name: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in os.environ.get(name, "").split(",") if one.strip())


def own_namespace() -> str:
    """The namespace of this pod; `waltz-system` outside of one."""
    reported = os.environ.get("POD_NAMESPACE")
    if reported:
        return reported
    try:
        with open(SERVICE_ACCOUNT_NAMESPACE, encoding="utf-8") as file:
            return file.read().strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def own_identity() -> str:
    """Name of this process: that of its pod, with a random part so that a restart in the same pod is another
    one (its process id is the same)."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{secrets.token_hex(4)}"
