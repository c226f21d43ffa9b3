"""The load of the demo: several writer processes, their progress, their measures."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from flights.measures import Measures
from flights.writer import WriterArguments
from waltz_tools.errors import ProcessFailedError
from waltz_tools.local import parent_guard

_LINE_BYTES = 1 << 20


class Load:
    """Writer processes of one run. `committed` grows while they work."""

    def __init__(self, arguments: Sequence[WriterArguments], logs: Path, changed: Callable[[], None]) -> None:
        self._arguments = arguments
        self._logs = logs
        self._changed = changed
        self._latest = [dict[str, int]() for _ in arguments]

    @property
    def committed(self) -> int:
        return self._sum("committed")

    @property
    def lock_conflicts(self) -> int:
        return self._sum("lock_conflicts")

    def _sum(self, key: str) -> int:
        return sum(latest.get(key, 0) for latest in self._latest)

    async def run(self) -> Measures:
        """Run all writers to their end; ProcessFailedError with the last words of one that fails."""
        async with asyncio.TaskGroup() as group:
            for index in range(len(self._arguments)):
                group.create_task(self._run_one(index))
        merged = Measures()
        for arguments in self._arguments:
            merged.merge(_read_measures(Path(arguments.result)))
        return merged

    async def _run_one(self, index: int) -> None:
        log_path = self._logs / f"writer-{index + 1}.log"
        command = [
            sys.executable,
            "-m",
            "flights.writer",
            json.dumps(asdict(self._arguments[index])),
        ]
        with log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                parent_guard.__file__,
                str(os.getpid()),
                parent_guard.NO_PIPE,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_BYTES,
                start_new_session=True,
            )
        try:
            if process.stdout is not None:
                async for line in process.stdout:
                    self._latest[index] = json.loads(line)
                    self._changed()
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code != 0:
            lines = log_path.read_text(errors="replace").strip().splitlines()
            words = f": {lines[-1][:300]}" if lines else ""
            raise ProcessFailedError(f"writer {index + 1} ended with code {code}{words} (log: {log_path})")


def _read_measures(path: Path) -> Measures:
    return Measures.from_message(json.loads(path.read_text()))
