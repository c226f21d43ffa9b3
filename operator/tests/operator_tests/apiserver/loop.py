"""An event loop in which the DNS names of pods resolve: to the loopback ports where their processes really
listen.

A name of the cluster that nobody serves fails as DNS would; everything else goes its usual way.
"""

import asyncio
import socket
from typing import Any

CLUSTER_SUFFIX = ".svc"


class ClusterLoop(asyncio.SelectorEventLoop):
    """`names`: (host, port) as in connect strings → the real port on 127.0.0.1. `cut`: hosts that do not
    answer."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[tuple[str, int], int] = {}
        self.cut: set[tuple[str, int]] = set()

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        if isinstance(host, str) and host.endswith(CLUSTER_SUFFIX):
            real = self.names.get((host, port))
            if real is None:
                raise socket.gaierror(socket.EAI_NONAME, f"no such name: {host}")
            if (host, port) in self.cut:
                raise ConnectionRefusedError(111, f"{host}:{port} does not answer")
            host, port = "127.0.0.1", real
        return await super().create_connection(protocol_factory, host, port, **more)


def cluster_loop() -> ClusterLoop:
    """The running one."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, ClusterLoop):
        raise RuntimeError("this needs a ClusterLoop")
    return loop
