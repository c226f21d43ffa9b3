"""A console that listens: with TLS, without a ZooKeeper, on a port that is taken, and until it is ended."""

import asyncio
import socket
import ssl
import time
from pathlib import Path

import pytest
from aiohttp import ClientSession, CookieJar
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from waltz_admin.authority import issue, make_authority
from waltz_tools.console.run import link, serving
from waltz_tools.console.settings import ConsoleSettings, new_token
from waltz_tools.errors import ToolError

HOUR = 3600.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose ZooKeeper does not exist."""
    path = tmp_path / "client.yaml"
    path.write_text(
        "zookeeper.connectString: 127.0.0.1:1\nzookeeper.sessionTimeout: 1000\nzookeeper.connectTimeout: 300\n"
        "cluster.root: /nowhere\nclient.ssl.allowUnverified: true\nssl.allowUnverified: true\n"
    )
    return path


@pytest.fixture
def pems(tmp_path: Path) -> dict[str, str]:
    """An authority, and a certificate of it for 127.0.0.1, as files."""
    now = time.time()
    authority = make_authority("a test", now, HOUR)
    pair = issue(authority, "console", ["127.0.0.1"], now, HOUR)
    found = {"authority": authority.certificate, "certificate": pair.certificate, "key": pair.key}
    for name, content in found.items():
        (tmp_path / f"{name}.pem").write_bytes(content)
    return {name: str(tmp_path / f"{name}.pem") for name in found}


async def test_with_tls_and_without_a_zookeeper(config: Path, pems: dict[str, str]) -> None:
    settings = ConsoleSettings(
        new_token(), port=0, interval_seconds=0.1, certificate=pems["certificate"], key=pems["key"]
    )
    async with serving(config, settings) as bound:
        address, _, token = link(bound, with_token=True).partition("#token=")
        assert address == f"https://127.0.0.1:{bound.port}/"
        assert link(bound, with_token=False) == address
        trusted = ssl.create_default_context(cafile=pems["authority"])
        async with ClientSession(address, cookie_jar=CookieJar(unsafe=True)) as session:
            origin = {"Origin": address.rstrip("/")}
            async with session.post(
                "/api/login", json={"token": token}, headers=origin, ssl=trusted
            ) as answer:
                assert answer.status == 200
                assert "; Secure" in answer.headers["Set-Cookie"]
            async with session.get("/api/overview", ssl=trusted) as answer:
                assert answer.status == 503
                assert "ZooKeeper at 127.0.0.1:1 did not answer" in (await answer.json())["error"]
            async with session.get("/api/records", ssl=trusted) as answer:
                assert answer.status == 503
                assert "ZooKeeper" in (await answer.json())["error"]
            async with session.get("/", ssl=trusted) as answer:
                assert answer.status == 200
                assert "Server" not in answer.headers


async def test_a_certificate_that_is_renewed_is_shown_to_the_next_connection(
    config: Path, pems: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz_protocol.aio.following.COMPARE_SECONDS", 0.0)
    settings = ConsoleSettings(new_token(), port=0, certificate=pems["certificate"], key=pems["key"])

    async def shown(port: int) -> bytes:
        return (await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))).encode()

    async with serving(config, settings) as bound:
        before = Path(pems["certificate"]).read_bytes()
        assert await shown(bound.port) == before
        now = time.time()
        pair = issue(make_authority("another", now, HOUR), "console", ["127.0.0.1"], now, HOUR)
        Path(pems["key"]).write_bytes(pair.key)
        Path(pems["certificate"]).write_bytes(pair.certificate)
        assert await shown(bound.port) == pair.certificate != before


async def test_what_keeps_it_from_listening_is_one_sentence(config: Path, pems: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ConsoleSettings(new_token(), port=taken.getsockname()[1])
        with pytest.raises(ToolError, match="is already in use: pass another --port"):
            await _start(config, settings)
    with pytest.raises(ToolError, match=r"cannot listen on nowhere\.invalid:0"):
        await _start(config, ConsoleSettings(new_token(), host="nowhere.invalid", port=0))
    for host in ("metrics..example", "a" * 64 + ".example"):
        with pytest.raises(ToolError, match=r"cannot listen on .*\.example:0: it is no host name"):
            await _start(config, ConsoleSettings(new_token(), host=host, port=0))
    wrong = ConsoleSettings(new_token(), port=0, certificate=pems["key"], key=pems["key"])
    with pytest.raises(ToolError, match="cannot be used"):
        await _start(config, wrong)


async def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
    config: Path, pems: dict[str, str]
) -> None:
    key = load_pem_private_key(Path(pems["key"]).read_bytes(), None)
    Path(pems["key"]).write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    settings = ConsoleSettings(new_token(), port=0, certificate=pems["certificate"], key=pems["key"])
    with pytest.raises(ToolError, match=r"key\.pem has a password: give the console a key without one"):
        await _start(config, settings)


async def _start(config: Path, settings: ConsoleSettings) -> None:
    async with serving(config, settings):
        raise AssertionError("it listens")


async def test_open_pages_do_not_keep_it_from_ending(config: Path) -> None:
    settings = ConsoleSettings(new_token(), port=0, interval_seconds=0.1)
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
        async with asyncio.timeout(60), serving(config, settings) as bound:
            address = link(bound, with_token=False)
            origin = {"Origin": address.rstrip("/")}
            await session.post(f"{address}api/login", json={"token": settings.token}, headers=origin)
            stream = await session.get(f"{address}api/events")
            assert (await stream.content.readline()).startswith(b"event: ")
        stream.close()
