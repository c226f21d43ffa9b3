"""Running a command in a container, for tools: what only a pod can reach is asked there."""

import asyncio
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.stream import WsApiClient

from waltz_operator.kube.errors import KubeError, KubeForbiddenError, KubeUnavailableError

STDOUT, STDERR, ERROR = 1, 2, 3
_PROTOCOL = "v4.channel.k8s.io"


class Remote(Protocol):
    """Where commands are run; tests have another one than `PodExec`."""

    async def run(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        """Standard output of a command in a container; KubeError with the last line of its standard error
        when it failed."""
        ...


class PodExec:
    """`Remote` over the API server's `exec`; needs the permission to create `pods/exec`."""

    def __init__(self, configuration: Configuration, timeout_seconds: float = 60.0) -> None:
        self._configuration = configuration
        self._timeout_seconds = timeout_seconds

    async def run(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
        what = f"exec in {namespace}/{pod}"
        api = WsApiClient(self._configuration)  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(self._timeout_seconds):
                _, url, headers, _, _ = await api.param_serialize("GET", path, auth_settings=["BearerToken"])
                url += "?" + urlencode([*query, *(("command", part) for part in command)])
                headers["sec-websocket-protocol"] = _PROTOCOL
                response = await api.request("GET", url, headers=headers, _preload_content=False)  # type: ignore[no-untyped-call]
                async with response as socket:
                    return await _output(socket, what)
        except aiohttp.WSServerHandshakeError as error:
            if error.status in (401, 403):
                raise KubeForbiddenError(f"{what}: not permitted", status=error.status) from None
            raise KubeUnavailableError(f"{what}: HTTP {error.status}", status=error.status) from None
        except (TimeoutError, aiohttp.ClientError, OSError, ApiException) as error:
            reason = str(error) or f"no answer within {self._timeout_seconds:g} s"
            raise KubeUnavailableError(f"{what}: {reason}") from error
        finally:
            await api.close()  # type: ignore[no-untyped-call]


async def _output(socket: aiohttp.ClientWebSocketResponse, what: str) -> str:
    """Everything the command says, by channel, until the socket closes."""
    said: dict[int, bytearray] = {STDOUT: bytearray(), STDERR: bytearray(), ERROR: bytearray()}
    async for message in socket:
        data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
        if data:
            said.setdefault(data[0], bytearray()).extend(data[1:])
    code = WsApiClient.parse_error_data(said[ERROR].decode()) if said[ERROR] else 0  # type: ignore[no-untyped-call]
    if code:
        lines = said[STDERR].decode(errors="replace").strip().splitlines()
        raise KubeError(f"{what}: {lines[-1] if lines else f'exit code {code}'}")
    return said[STDOUT].decode(errors="replace")
