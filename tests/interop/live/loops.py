"""An event loop for one piece of work."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from waltz_protocol.aio.closing import wait_gone

Result = TypeVar("Result")


def run(work: Coroutine[object, object, Result]) -> Result:
    """`asyncio.run`, and the connections that it closed are gone: a server of 0.13.2 takes its time to say
    good-bye."""

    async def whole() -> Result:
        try:
            return await work
        finally:
            await wait_gone()

    return asyncio.run(whole())
