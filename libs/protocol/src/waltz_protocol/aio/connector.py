"""Opening a channel to a peer."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence

from waltz_protocol.aio.channel import Channel, ChannelHandler, ChannelSettings
from waltz_protocol.aio.names import addresses_of
from waltz_protocol.aio.tls import ClientTls
from waltz_protocol.errors import ChannelClosedError, ConnectError, HandshakeError
from waltz_protocol.types import MAX_HOST_CHARACTERS, Endpoint

__all__ = ["ConnectError", "connect", "connect_problem"]


async def connect(
    endpoint: Endpoint,
    settings: ChannelSettings,
    handler: ChannelHandler,
    tls: ClientTls | None,
    connect_timeout_seconds: float = 10.0,
) -> Channel:
    """Connect, do TLS (None: plaintext) and the Hello; gives a channel that is ready.

    `connect_timeout_seconds` covers TCP and TLS, the Hello has its own limit in the settings. Raises
    ConnectError, also where no thread can be started to look the name up. When it raises or is cancelled the
    connection is cut; the handler gets `channel_closed` if a channel had been made.
    """
    if not 0 < endpoint.port < 65536:  # one kind of event loop would take it modulo 65536
        raise ConnectError(f"cannot connect to {endpoint}: not a port")
    if not endpoint.valid:
        shown = f"{endpoint.host[:MAX_HOST_CHARACTERS]!r}:{endpoint.port}"
        raise ConnectError(f"cannot connect to {shown}: that is no host name")
    made: list[Channel] = []

    def channel() -> Channel:
        made.append(Channel(settings, handler, connecting=True))
        return made[0]

    try:
        async with asyncio.timeout(connect_timeout_seconds):
            for left, address in _countdown(await addresses_of(endpoint.system_host)):
                try:
                    await _open(channel, address, endpoint, settings, tls, connect_timeout_seconds)
                    break
                except OSError as e:
                    if not left or isinstance(e, ssl.SSLError):  # another address does not mend TLS
                        raise
                    made.clear()  # uvloop makes it before it connects; to its handler nothing has happened
        await made[0].wait_ready()
    except (OSError, TimeoutError, HandshakeError, ChannelClosedError, ValueError, RuntimeError) as e:
        _cut(made, str(e))
        raise ConnectError(
            f"cannot connect to {endpoint}: {connect_problem(e, connect_timeout_seconds, tls)}",
            refused=isinstance(e, ConnectionRefusedError),
            turned_away=isinstance(e, (ssl.SSLError, ChannelClosedError, ConnectionResetError)),
        ) from None
    except BaseException:
        _cut(made, "cancelled while connecting")
        raise
    return made[0]


async def _open(
    channel: Callable[[], Channel],
    address: str,
    endpoint: Endpoint,
    settings: ChannelSettings,
    tls: ClientTls | None,
    timeout_seconds: float,
) -> None:
    """TCP to this address of the endpoint, and TLS, in which the peer is called by its name."""
    loop = asyncio.get_running_loop()
    if tls is None:
        await loop.create_connection(channel, address, endpoint.port)
    else:
        await loop.create_connection(
            channel,
            address,
            endpoint.port,
            ssl=tls,
            server_hostname=endpoint.system_host,
            ssl_handshake_timeout=timeout_seconds,
            ssl_shutdown_timeout=settings.close_timeout_seconds,
        )


def _countdown(addresses: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each with the number of those that are left."""
    return zip(range(len(addresses) - 1, -1, -1), addresses, strict=True)


def _cut(made: list[Channel], reason: str) -> None:
    """Also a channel whose transport is there and has not informed it yet: the loop closes such a transport
    without an effect on TLS, whose handshake would be completed: a connection that nobody owns."""
    for channel in made:
        channel.abort(reason)


def connect_problem(e: Exception, timeout_seconds: float, tls: ClientTls | None = None) -> str:
    """Why no connection was made, in words. `tls`: with which the peer was connected to, where it verifies
    certificates of ours as nodes and servers do."""
    if isinstance(e, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {e.verify_message}"
    if isinstance(e, ssl.SSLError):
        what = "the peer does not speak TLS at this port: " if e.reason == "WRONG_VERSION_NUMBER" else ""
        return f"TLS failed: {what}{e.reason or e}"
    if tls is not None and isinstance(e, ChannelClosedError | ConnectionResetError):
        closed = "the peer closed the connection (before the TLS handshake was done)"  # TLS 1.2: no text
        return f"{e if isinstance(e, ChannelClosedError) else closed}: {tls.why_refused}"
    if isinstance(e, ChannelClosedError):  # as a port with TLS does to who speaks none
        return f"{e}: is TLS on at both ends, and is our certificate in the peer's allowedPeers?"
    if isinstance(e, TimeoutError) and not e.errno:
        return f"no answer within {timeout_seconds:g} s"
    if isinstance(e, socket.gaierror):
        return f"the host name is not known ({e.strerror})"
    if isinstance(e, ValueError):
        return "that is no host name"
    if isinstance(e, OSError) and e.errno:
        return os.strerror(e.errno).lower()
    return str(e) or type(e).__name__
