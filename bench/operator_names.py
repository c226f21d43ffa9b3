"""The names of pods where no DNS is: each process that runs pods writes a file, and everybody looks there."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

_SUFFIX = ".svc"

Names = Mapping[tuple[str, int], int]
"""(host, port) as in connect strings → the real port on 127.0.0.1."""


def publish(names: Names, file: Path) -> None:
    """Write the file anew; readers see the old one or the new one."""
    text = json.dumps([[host, port, real] for (host, port), real in sorted(names.items())])
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


class NamedLoop(uvloop.Loop):
    """The loop of the services, in which names of pods lead to where their processes listen, by the files
    `*.json` of a directory. One that was written anew is read again."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._files: dict[str, tuple[int, dict[tuple[str, int], int]]] = {}

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        if isinstance(host, str) and host.endswith(_SUFFIX):
            host, port = "127.0.0.1", self._port_of(host, port)
        return await super().create_connection(protocol_factory, host, port, **more)

    def _port_of(self, host: str, port: int) -> int:
        for file in sorted(self._directory.glob("*.json")):
            written_at = os.stat(file).st_mtime_ns
            read_at, names = self._files.get(file.name, (0, {}))
            if written_at != read_at:
                names = {(host, port): real for host, port, real in json.loads(file.read_text())}
                self._files[file.name] = written_at, names
            if (real := names.get((host, port))) is not None:
                return real
        raise socket.gaierror(socket.EAI_NONAME, f"no such name: {host}")
