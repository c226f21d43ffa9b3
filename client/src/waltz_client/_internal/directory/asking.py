"""One request to one server of the list, and its answer: to the server that is watched, on the connection
that is there, or to another one, on a connection of its own, which ends then."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from uuid import UUID

from waltz_client._internal.directory.session import DirectorySession, Make
from waltz_client._internal.link import LinkSettings
from waltz_protocol.directory import Directory
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.messages.fields import Message
from waltz_protocol.types import Endpoint


class Question(NamedTuple):
    """What is asked for: the request, made for a request id; what the answer gives, in the words of
    errors."""

    make: Make
    what: str


async def ask(session: DirectorySession, question: Question, seconds: float) -> Message | str:
    """The answer, or why there is none."""
    try:
        async with asyncio.timeout(seconds):
            response = await session.request(question.make)
    except TimeoutError:
        return f"a server gave no {question.what} within {seconds:g} s"
    if response is not None:
        return response
    if session.misunderstood:
        return f"a server knows nothing of a {question.what}, it is of an earlier release: {session.close_reason}"
    return f"the connection ended before there was a {question.what}: {session.close_reason}"


async def ask_another(
    server: Endpoint,
    key: UUID | None,
    settings: LinkSettings,
    attempt_seconds: float,
    question: Question,
    seconds: float,
) -> Message | str:
    """The same, from this server, whose directory shows first that it is of the cluster with this key: ids
    and producers of two clusters have nothing to do with each other."""
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
            return await ask(session, question, seconds)
    finally:
        channel.close("the client has asked what it wanted to know")
    return f"server {server} gave no directory of this cluster"
