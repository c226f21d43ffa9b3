"""A process that dies on its own: at the place where it hurts, which faults from outside seldom hit."""

from __future__ import annotations

import asyncio

from tests.sim.kernel.process import current


async def crash() -> None:
    """The running process ends here, as by SIGKILL; it is started again. Does not return."""
    process = current()
    if process is not None:
        process.kill()
        await asyncio.Event().wait()
