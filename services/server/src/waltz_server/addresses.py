"""Where a server listens and what it tells clients (client-server protocol, TCP).

0.13.2 binds to the address its own host name resolves to and advertises the canonical name of that address; containers
and machines with several addresses need `server.bind.host` and `server.advertised.*` instead.
"""

from __future__ import annotations

import asyncio
import socket

from waltz_cluster.errors import ConfigError
from waltz_protocol.types import Endpoint
from waltz_server.settings import ServerSettings

_WILDCARDS = frozenset(("0.0.0.0", "::", ""))


async def bind_host(settings: ServerSettings) -> str:
    """The address to listen on; ConfigError naming the key when the host name does not resolve."""
    if settings.bind_host is not None:
        return settings.bind_host
    name = socket.gethostname()
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, settings.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(
            f"the host name {name} has no address ({error.strerror or error}): set server.bind.host"
        ) from None
    return str(found[0][4][0])


async def advertised_endpoint(settings: ServerSettings, bound_host: str, bound_port: int) -> Endpoint:
    """Host and port written into ZooKeeper; settings first, then the bind host, then the canonical name."""
    port = settings.advertised_port or bound_port
    if settings.advertised_host is not None:
        return Endpoint(settings.advertised_host, port)
    if settings.bind_host is not None and settings.bind_host not in _WILDCARDS:
        return Endpoint(settings.bind_host, port)
    address = "" if bound_host in _WILDCARDS else bound_host
    canonical = await asyncio.get_running_loop().run_in_executor(None, socket.getfqdn, address)
    return Endpoint(canonical, port)
