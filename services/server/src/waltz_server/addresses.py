"""Where a server listens and what address clients get (docs/protocol.md, clients and servers).

0.13.2 binds to the address its own host name resolves to and advertises the canonical name of that address;
containers and machines with several addresses need `server.bind.host` and `server.advertised.*` instead.
`{dashed-address}` in `server.advertised.host` is replaced by this machine's own address with dashes in it
(10-1-2-3): such names resolve for the pods behind a headless service of Kubernetes, and one configuration
serves them all. `{address}` is the address as it is. The environment variable `WALTZ_ADDRESS` says what the
own address is where only others know it (of the machine below a container).
"""

from __future__ import annotations

import asyncio
import os
import socket

from waltz_cluster.errors import ConfigError
from waltz_protocol.types import Endpoint
from waltz_server.settings import ServerSettings

ADDRESS = "{address}"
DASHED_ADDRESS = "{dashed-address}"
ADDRESS_VARIABLE = "WALTZ_ADDRESS"
_WILDCARDS = frozenset(("0.0.0.0", "::", ""))


async def bind_host(settings: ServerSettings) -> str:
    """The address to listen on; ConfigError naming the key when the host name does not resolve."""
    if settings.bind_host is not None:
        return settings.bind_host
    return await _own_address(settings.port, "server.bind.host")


async def _own_address(port: int, key: str) -> str:
    """What this machine's host name resolves to; ConfigError naming the key to set instead."""
    name = socket.gethostname()
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(
            f"the host name {name} has no address ({error.strerror or error}): set {key}"
        ) from None
    return str(found[0][4][0])


async def advertised_endpoint(settings: ServerSettings, bound_host: str, bound_port: int) -> Endpoint:
    """Host and port written into ZooKeeper; settings first, then the bind host, then the canonical name."""
    port = settings.advertised_port or bound_port
    if settings.advertised_host is not None:
        host = settings.advertised_host
        if ADDRESS in host or DASHED_ADDRESS in host:
            address = os.environ.get(ADDRESS_VARIABLE) or (
                await _own_address(port, "server.advertised.host") if bound_host in _WILDCARDS else bound_host
            )
            host = host.replace(ADDRESS, address)
            host = host.replace(DASHED_ADDRESS, address.replace(".", "-").replace(":", "-"))
        return Endpoint(host, port)
    if settings.bind_host is not None and settings.bind_host not in _WILDCARDS:
        return Endpoint(settings.bind_host, port)
    address = "" if bound_host in _WILDCARDS else bound_host
    canonical = await asyncio.get_running_loop().run_in_executor(None, socket.getfqdn, address)
    return Endpoint(canonical, port)
