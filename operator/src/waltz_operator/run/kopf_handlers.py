"""The explicit registry of kopf handlers, and kopf's settings. All names are given, so that nothing depends
on kopf's defaults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from waltz_operator.api.metadata import (
    FINALIZER,
    GROUP,
    LABEL_INSTANCE,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    VERSION,
)
from waltz_operator.kube import kinds

Wake = Callable[[tuple[str, str]], None]

WATCHED = (
    kinds.CONFIG_MAP,
    kinds.DEPLOYMENT,
    kinds.ENDPOINT_SLICE,
    kinds.JOB,
    kinds.NETWORK_POLICY,
    kinds.POD,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.PVC,
    kinds.SECRET,
    kinds.SERVICE,
    kinds.STATEFUL_SET,
)
"""Everything that the operator makes, by its label only; but for kinds of others, which may not be
installed."""
SERVER_TIMEOUT_SECONDS = 240  # whole seconds: the API server takes nothing else
CLIENT_TIMEOUT_SECONDS = 300.0
INACTIVITY_SECONDS = 90.0
"""A watch that shows neither events nor bookmarks for so long is opened anew: silent stalls are the classic
failure of watches."""


def build_registry(
    wake: Wake,
    configuration: Callable[[], Configuration],
    relisted: Callable[[], None],
    ours: Callable[[str], bool],
) -> tuple[kopf.OperatorRegistry, kopf.OperatorSettings]:
    """Handlers that call `wake` with the cluster concerned, and `relisted` before when a watch began anew
    with a list, which does not show what was deleted meanwhile. `configuration`: where the API server is,
    asked again for new credentials. `ours`: whether a resource version is what a write of our own has
    left."""
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    _configure(settings)
    _quiet()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await connection_info(configuration())

    @kopf.on.event(GROUP, VERSION, "waltzclusters", registry=registry)
    def cluster_changed(
        namespace: str | None, name: str | None, type: str | None, meta: Mapping[str, Any], **_: Any
    ) -> None:
        if type is None:
            relisted()
        if namespace and name and not ours(str(meta.get("resourceVersion"))):
            wake((namespace, name))

    @kopf.on.event(GROUP, VERSION, "waltzmigrations", registry=registry)
    def migration_changed(
        namespace: str | None,
        spec: Mapping[str, Any],
        type: str | None,
        meta: Mapping[str, Any],
        **_: Any,
    ) -> None:
        if type is None:
            relisted()
        cluster = spec.get("cluster")
        if namespace and isinstance(cluster, str) and not ours(str(meta.get("resourceVersion"))):
            wake((namespace, cluster))

    for kind in WATCHED:
        group, _, version = kind.api_version.rpartition("/")
        plural = kind.plural

        def child_changed(
            namespace: str | None, labels: Mapping[str, str], type: str | None, **_: Any
        ) -> None:
            if type is None:
                relisted()
            cluster = labels.get(LABEL_INSTANCE)
            if namespace and cluster:
                wake((namespace, cluster))

        kopf.on.event(
            group,
            version,
            plural,
            id=f"{plural}_changed",
            labels={LABEL_MANAGED_BY: MANAGED_BY, LABEL_INSTANCE: kopf.PRESENT},
            registry=registry,
        )(child_changed)
        settings.watching.label_selectors[group, version, plural] = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
    return registry, settings


def _quiet() -> None:
    """kopf logs for every event that it has called a handler: that is of no interest."""
    for name in ("kopf.objects", "kopf.activities"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _configure(settings: kopf.OperatorSettings) -> None:
    settings.posting.enabled = False  # Events are our own, typed ones
    settings.posting.level = logging.CRITICAL
    settings.peering.standalone = True  # the Lease keeps others out
    settings.scanning.disabled = (
        True  # no watching of namespaces and definitions: the role needs not permit it
    )
    # Ours is put and taken by the reconciler. kopf takes away a finalizer of this name from objects for which
    # no handler of its own wants one, so it must be another name.
    settings.persistence.finalizer = f"{FINALIZER}-kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, v1=False)
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.inactivity_timeout = INACTIVITY_SECONDS
    settings.watching.connect_timeout = 10.0
    settings.networking.request_timeout = 60.0
    settings.networking.connect_timeout = 10.0
    settings.queueing.worker_limit = 100


async def connection_info(configuration: Configuration) -> kopf.ConnectionInfo:
    """The same server and credentials that our own client uses. Tokens are read anew at each login."""
    key = (await configuration.auth_settings()).get("BearerToken")
    scheme, _, token = str(key["value"]).strip().partition(" ") if key is not None else ("", "", "")
    ca_data = configuration.ca_cert_data
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=None if ca_data else configuration.ssl_ca_cert,
        ca_data=ca_data,
        insecure=not configuration.verify_ssl or None,
        scheme=scheme.capitalize() or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy or None,
    )
