"""What a server tells clients about itself."""

import socket

import pytest

from waltz_protocol.types import Endpoint
from waltz_server.addresses import advertised_endpoint
from waltz_server.settings import ServerSettings


def settings(**keys: object) -> ServerSettings:
    base: dict[str, object] = {
        "zookeeper.connectString": "zk",
        "cluster.root": "/r",
        "zookeeper.sessionTimeout": 3000,
        "server.port": 55180,
    }
    return ServerSettings.from_mapping({**base, **{key.replace("_", "."): v for key, v in keys.items()}})


async def test_the_dashed_address_is_that_of_the_bound_host() -> None:
    given = settings(server_advertised_host="{dashed-address}.c-server.ns.svc")
    assert await advertised_endpoint(given, "10.1.2.3", 1) == Endpoint("10-1-2-3.c-server.ns.svc", 1)
    assert await advertised_endpoint(given, "fd00::7", 1) == Endpoint("fd00--7.c-server.ns.svc", 1)


async def test_a_wildcard_address_gives_way_to_what_the_host_name_resolves_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.0.9")
    given = settings(server_advertised_host="{dashed-address}.c", server_bind_host="0.0.0.0")
    assert await advertised_endpoint(given, "0.0.0.0", 55180) == Endpoint("127-0-0-9.c", 55180)


async def test_the_address_as_it_is() -> None:
    given = settings(server_advertised_host="{address}", server_advertised_port=31180)
    assert await advertised_endpoint(given, "10.1.2.3", 1) == Endpoint("10.1.2.3", 31180)


async def test_the_environment_knows_the_address_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container on a port of its machine: the machine's address is what clients reach."""
    monkeypatch.setenv("WALTZ_ADDRESS", "192.168.7.8")
    for host, told in (
        ("{address}", "192.168.7.8"),
        ("{dashed-address}.example.com", "192-168-7-8.example.com"),
    ):
        given = settings(server_advertised_host=host, server_bind_host="0.0.0.0")
        assert await advertised_endpoint(given, "0.0.0.0", 1) == Endpoint(told, 1)
    assert await advertised_endpoint(settings(server_advertised_host="h"), "10.1.2.3", 1) == Endpoint("h", 1)
