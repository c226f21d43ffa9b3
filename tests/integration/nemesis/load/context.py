"""What every load process has: its name, its journal, its random numbers, and the wish of others that it
stop."""

import asyncio
import random
from itertools import count
from pathlib import Path

from tests.integration.nemesis.load.journal import Journal


class Context:
    """One incarnation of one load process. `name` is "bank-1.3" for the third start of bank-1."""

    def __init__(self, name: str, directory: Path, seed: int) -> None:
        self.name = name
        self.directory = directory
        self.role = name.rpartition(".")[0]
        self.journal = Journal(directory / f"{name}.journal")
        self.rng = random.Random(f"{seed}/{name}")
        self.stop = asyncio.Event()
        self._numbers = count(1)

    def new_name(self) -> str:
        """Unique over all processes and their starts."""
        return f"{self.name}/{next(self._numbers)}"

    async def pause(self, mean_seconds: float) -> None:
        """A random pause; ends early when the process is to stop."""
        try:
            async with asyncio.timeout(self.rng.uniform(0.5, 1.5) * mean_seconds):
                await self.stop.wait()
        except TimeoutError:
            pass
