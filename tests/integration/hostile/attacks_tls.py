"""TLS left out, put where there is none, and shown with certificates that nobody here should believe."""

import asyncio
import ssl

from tests.integration.hostile.wires import Target, Wire, careless_tls
from waltz_protocol.handshake import encode_hello

_TIMES = 20


async def stripped(target: Target) -> None:
    """A plaintext Hello and request to a TLS port."""
    for _ in range(_TIMES):
        made = await Wire.open(target, None)
        await made.send(encode_hello((0, 1, 2, 3, 4), "plain") + target.frame(bytes(40)))
        assert await made.is_cut()
        made.abort()


async def where_there_is_none(target: Target) -> None:
    """A TLS client at a plaintext port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for _ in range(_TIMES):
        try:
            (await Wire.open(target, context)).abort()
        except OSError:
            continue
        raise AssertionError("TLS with a plaintext port")


async def wrong_certificate(target: Target) -> None:
    """A client certificate (or none) that is not accepted; `target.key_file` says which."""
    for _ in range(_TIMES):
        try:
            made = await Wire.open(target, careless_tls(target))
            await made.greet(target)
        except (OSError, asyncio.IncompleteReadError):
            continue
        raise AssertionError(f"greeted with {target.key_file}")


async def handshake_storm(target: Target) -> None:
    """TLS handshakes one after another, abandoned as soon as the other side has done its part."""
    until = asyncio.get_running_loop().time() + target.seconds
    while asyncio.get_running_loop().time() < until:
        try:
            (await Wire.open(target, careless_tls(target))).abort()
        except OSError:
            pass
