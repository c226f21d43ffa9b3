"""The console: a Deployment of one pod, which is `waltz console`, and the Service in front of it.

One pod, for sessions are in its memory. It has a certificate of its own, and no right in Kubernetes. Nothing
of the cluster waits for it, and it is changed at once, whatever else is under way.
"""

from __future__ import annotations

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.security import TlsMode
from waltz_operator.api.topology import CONSOLE_PORT, console_name, console_secret
from waltz_operator.resources.addresses import family_policy, listen_address
from waltz_operator.resources.basis import console_basis, console_config_basis
from waltz_operator.resources.common import (
    CONFIG_DIRECTORY,
    CONSOLE,
    TLS_DIRECTORY,
    container,
    labels,
    make,
    pod_basics,
    resources_of,
    selector,
)
from waltz_operator.resources.config import CONSOLE_FILE, console_keys, file_for, role_files
from waltz_operator.resources.files import (
    FILE_MODE,
    Volumes,
    certificates,
    config_map,
    mounted,
    scratch,
    zookeeper_auth,
)
from waltz_operator.resources.images import image_of
from waltz_operator.resources.inputs import Obj, RenderInputs
from waltz_operator.resources.login import login_annotations
from waltz_operator.resources.overlay import overlaid, settled, settled_data

TOKEN_DIRECTORY = "/etc/waltz/console"
TOKEN_KEY = "token"


def console_objects(cluster: WaltzCluster, inputs: RenderInputs) -> list[Obj]:
    """Everything of the console but its Secrets; nothing when it is switched off."""
    if not cluster.spec.console.enabled:
        return []
    return [_config(cluster, inputs), _service(cluster, inputs), _deployment(cluster, inputs)]


def _config(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    name, members = console_name(cluster), inputs.zookeeper_members
    data = role_files(inputs, name, CONSOLE_FILE, lambda level: console_keys(cluster, members, level))
    kept, annotations = settled_data(cluster, inputs, name, console_config_basis(cluster, inputs), data)
    return make(cluster, "v1", "ConfigMap", name, CONSOLE, {"data": kept}, annotations=annotations)


def scheme(cluster: WaltzCluster) -> str:
    """How browsers reach it."""
    return "http" if cluster.spec.tls.mode is TlsMode.DISABLED else "https"


def _service(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    name = console_name(cluster)
    port = {
        "name": scheme(cluster),
        "port": CONSOLE_PORT,
        "targetPort": "console",
        "protocol": "TCP",
        "appProtocol": scheme(cluster),
    }
    policy = family_policy(inputs, name)
    spec = {**policy, "type": "ClusterIP", "selector": selector(cluster, CONSOLE), "ports": [port]}
    return make(cluster, "v1", "Service", name, CONSOLE, {"spec": spec})


def _deployment(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    name = console_name(cluster)
    fresh = overlaid(_template(cluster, inputs), cluster.spec.console.pod_template)
    basis = console_basis(cluster, inputs)
    template, annotations = settled(cluster, inputs, "Deployment", name, basis, fresh)
    spec = {
        "replicas": 1,
        "revisionHistoryLimit": 2,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": selector(cluster, CONSOLE)},
        "template": template,
    }
    return make(cluster, "apps/v1", "Deployment", name, CONSOLE, {"spec": spec}, annotations=annotations)


def _token(cluster: WaltzCluster) -> tuple[Volumes, Volumes]:
    source = {"secretName": console_secret(cluster), "defaultMode": FILE_MODE}
    volume = {"name": "console-token", "secret": source}
    return [volume], [{"name": "console-token", "mountPath": TOKEN_DIRECTORY, "readOnly": True}]


def _arguments(cluster: WaltzCluster, inputs: RenderInputs) -> list[str]:
    name, wanted = console_name(cluster), cluster.spec.console
    service = f"{name}.{cluster.metadata.namespace}.svc"
    hosts = (name, f"{name}.{cluster.metadata.namespace}", service, f"{service}.cluster.local", *wanted.hosts)
    tls = ["--tls-certificate", f"{TLS_DIRECTORY}/tls.crt", "--tls-key", f"{TLS_DIRECTORY}/tls.key"]
    return [
        "console",
        "--config",
        f"{CONFIG_DIRECTORY}/{file_for(CONSOLE_FILE, inputs.login)}",
        "--host",
        listen_address(inputs, name),
        "--port",
        str(CONSOLE_PORT),
        "--token-file",
        f"{TOKEN_DIRECTORY}/{TOKEN_KEY}",
        *(tls if scheme(cluster) == "https" else ["--allow-plaintext"]),
        "--allow-data" if wanted.show_data else "--no-allow-data",
        *(part for host in dict.fromkeys(hosts) for part in ("--allow-host", host)),
    ]


def _template(cluster: WaltzCluster, inputs: RenderInputs) -> Obj:
    wanted = cluster.spec.console
    volumes, mounts = mounted(
        config_map(console_name(cluster)),
        certificates(cluster, CONSOLE),
        zookeeper_auth(cluster, inputs.login),
        _token(cluster),
        scratch(),
    )
    probe = {"tcpSocket": {"port": "console"}, "periodSeconds": 10, "timeoutSeconds": 5}
    main = container(
        cluster,
        CONSOLE,
        image_of(cluster, inputs.images, inputs.version, CONSOLE),
        args=_arguments(cluster, inputs),
        env=[{"name": "HOME", "value": "/tmp"}],
        ports=[{"name": "console", "containerPort": CONSOLE_PORT, "protocol": "TCP"}],
        resources=resources_of(wanted.resources.requests, wanted.resources.limits),
        volumeMounts=mounts,
        startupProbe={**probe, "periodSeconds": 2, "failureThreshold": 60},
        livenessProbe={**probe, "failureThreshold": 6},
        readinessProbe={**probe, "failureThreshold": 2},
    )
    return {
        "metadata": {"labels": labels(cluster, CONSOLE), "annotations": login_annotations(inputs.login)},
        "spec": {
            **pod_basics(cluster, inputs),
            "terminationGracePeriodSeconds": 5,
            "containers": [main],
            "volumes": volumes,
        },
    }
