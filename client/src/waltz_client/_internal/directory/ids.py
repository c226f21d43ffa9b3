"""A client id from a server that is not the watched one: on a connection of its own, which ends then."""

from __future__ import annotations

import asyncio
from uuid import UUID

from waltz_client._internal.directory.session import DirectorySession
from waltz_client._internal.link import LinkSettings
from waltz_protocol.directory import Directory
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import Endpoint


async def ask(session: DirectorySession, seconds: float) -> int | str:
    """An id, or why there is none."""
    try:
        async with asyncio.timeout(seconds):
            response = await session.new_client_id()
    except TimeoutError:
        return f"a server gave no client id within {seconds:g} s"
    if response is None:
        return f"the connection ended before there was a client id: {session.close_reason}"
    return response.client_id if response.client_id > 0 else response.text or "a server gave no client id"


async def ask_another(
    server: Endpoint, key: UUID | None, settings: LinkSettings, attempt_seconds: float, id_seconds: float
) -> int | str:
    """The same, from this server, whose directory shows first that it is of the cluster with this key: ids of
    two clusters have nothing to do with each other."""
    first: asyncio.Future[Directory | None] = asyncio.get_running_loop().create_future()

    def came(directory: Directory | None = None) -> None:
        if not first.done():
            first.set_result(directory)

    session = DirectorySession(came, came)
    try:
        async with asyncio.timeout(attempt_seconds):
            channel = await settings.connect(server, settings.channel, session, settings.tls, attempt_seconds)
    except TimeoutError:
        return f"server {server} did not answer within {attempt_seconds:g} s"
    except (WaltzProtocolError, OSError) as error:
        return str(error)
    try:
        async with asyncio.timeout(attempt_seconds):
            directory = await first if session.watch(channel) else None
    except TimeoutError:
        directory = None
    else:
        if directory is not None and directory.cluster_key == key:
            return await ask(session, id_seconds)
    finally:
        channel.close("the client has asked for an id")
    return f"server {server} gave no directory of this cluster"
