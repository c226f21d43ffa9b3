"""Where the API server is and who we are: inside a cluster by the service account, outside by a kubeconfig.

Both are read by the `kubernetes` package (tokens are renewed by it). Importing it takes a moment: only this
module and `client` do.
"""

import os
from pathlib import Path

import yaml
from kubernetes.aio import config as loaders
from kubernetes.aio.client import Configuration

from waltz_operator.kube.errors import KubeConfigError

IN_CLUSTER_VARIABLE = "KUBERNETES_SERVICE_HOST"
_MAX_CONNECTIONS = 16
_WRONG_SHAPE = (TypeError, AttributeError, KeyError, IndexError)
"""What the package raises about a file that is YAML and no kubeconfig, as an empty one."""


async def load(kubeconfig: str | None = None, context: str | None = None) -> Configuration:
    """The configuration: the named kubeconfig, else the service account, else `$KUBECONFIG` or
    `~/.kube/config`.

    KubeConfigError, one line, when there is none or it cannot be read.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = _MAX_CONNECTIONS
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    try:
        if kubeconfig is None and IN_CLUSTER_VARIABLE in os.environ:
            loaders.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return configuration
        if not any(os.path.isfile(one) for one in path.split(os.pathsep)):  # noqa: ASYNC240
            raise KubeConfigError(
                f"no kubeconfig at {path}, and this is not a pod of a cluster: give --kubeconfig"
            )
        await loaders.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, context=context, client_configuration=configuration, persist_config=False
        )
    except loaders.ConfigException as error:
        raise KubeConfigError(f"the Kubernetes configuration cannot be used: {error}") from None
    except (OSError, ValueError) as error:
        raise KubeConfigError(f"the Kubernetes configuration cannot be read: {error}") from None
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise KubeConfigError(f"the Kubernetes configuration is not valid YAML: {why}") from None
    except _WRONG_SHAPE:
        raise KubeConfigError(f"the Kubernetes configuration at {path} is no kubeconfig") from None
    return configuration
