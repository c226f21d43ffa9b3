"""Waiting for connections that were closed: those that say good-bye are waited for, the others are cut."""

import asyncio

from protocol_tests.peers import Recorder, connected, settings
from waltz_protocol.aio.closing import gone, leaving, wait_gone


class Stubborn:
    """Closed, and gone only when it is cut."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        self.reasons: list[str] = []

    async def wait_closed(self) -> None:
        await self.lost.wait()

    def abort(self, reason: str) -> None:
        self.reasons.append(reason)
        gone(self)
        self.lost.set()


async def test_a_closed_connection_is_waited_for() -> None:
    server, client = Recorder(), Recorder()
    async with connected(server, client, None, settings(versions=(0,))) as (_, channel):
        channel.close("done")
        await wait_gone(timeout_seconds=5)
        assert client.events[-1] == "closed"
        await wait_gone(timeout_seconds=0)  # nobody is left


async def test_who_does_not_go_is_cut() -> None:
    stubborn = Stubborn()
    leaving(stubborn, asyncio.get_running_loop())
    await wait_gone(timeout_seconds=0.01)
    assert stubborn.reasons == ["it did not close in time"]


async def test_connections_of_another_loop_are_not_ours() -> None:
    foreign, other = Stubborn(), asyncio.new_event_loop()
    try:
        leaving(foreign, other)
        await wait_gone(timeout_seconds=0.01)
        assert foreign.reasons == []
    finally:
        gone(foreign)
        other.close()


async def test_only_those_that_are_named_are_waited_for_and_cut() -> None:
    named, other = Stubborn(), Stubborn()
    leaving(other, asyncio.get_running_loop())
    try:
        await wait_gone([named], timeout_seconds=0.01)
        assert (named.reasons, other.reasons) == (["it did not close in time"], [])
    finally:
        gone(other)
