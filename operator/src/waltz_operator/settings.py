"""Settings of the operator process: by options of the command line, else by the environment of its pod."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass

SERVICE_ACCOUNT_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
DEFAULT_NAMESPACE = "waltz-system"
DEFAULT_HTTP_PORT = 8080


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """`namespaces`: the ones to work in; empty = all. Times in seconds.

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
