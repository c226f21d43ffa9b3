"""Logs of containers, for the support bundle."""

from __future__ import annotations

import asyncio
from typing import Protocol

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from waltz_operator.kube.errors import KubeUnavailableError, error_of

TAIL_LINES = 5_000
MAX_BYTES = 16 * 1024 * 1024


class PodLogs(Protocol):
    """Where logs come from; tests have another one than `ApiPodLogs`."""

    async def read(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        """The end of a container's log, of the one before its last restart with `previous`. KubeError."""
        ...


class ApiPodLogs:
    """`PodLogs` over the API server; at most `TAIL_LINES` lines and `MAX_BYTES` of each."""

    def __init__(self, configuration: Configuration, timeout_seconds: float = 30.0) -> None:
        self._configuration = configuration
        self._timeout_seconds = timeout_seconds

    async def read(self, namespace: str, pod: str, container: str, *, previous: bool) -> str:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        query = f"?container={container}&tailLines={TAIL_LINES}&limitBytes={MAX_BYTES}"
        query += "&previous=true" if previous else ""
        api = ApiClient(self._configuration)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                _, url, headers, _, _ = await api.param_serialize("GET", path, auth_settings=["BearerToken"])
                response = await api.call_api("GET", url + query, headers)
                raw: bytes = await response.read()  # type: ignore[no-untyped-call]
                status: int = response.status
        except (TimeoutError, aiohttp.ClientError, OSError, ApiException) as error:
            raise KubeUnavailableError(f"log of {namespace}/{pod}: {error or 'no answer'}") from error
        finally:
            await api.close()  # type: ignore[no-untyped-call]
        if not 200 <= status < 300:
            raise error_of(status, raw, f"log of {namespace}/{pod}")
        return raw.decode(errors="replace")
