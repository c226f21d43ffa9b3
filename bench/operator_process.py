"""`python -m bench.operator_process NAMES …`: the shipped operator (`waltz-operator …`) where no DNS is.

The names of pods are in the file NAMES, as (host, port, port on 127.0.0.1).
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import uvloop

from waltz_operator import __main__ as command
from waltz_runtime import process

_SUFFIX = ".svc"


class NamedLoop(uvloop.Loop):
    """The loop of the services, in which names of pods lead to where their processes listen. The file is read
    again when it was written anew."""

    def __init__(self, names: Path) -> None:
        super().__init__()
        self._file = names
        self._read_at = 0
        self._names: dict[tuple[str, int], int] = {}

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **more: Any
    ) -> Any:
        if isinstance(host, str) and host.endswith(_SUFFIX):
            real = self._found().get((host, port))
            if real is None:
                raise socket.gaierror(socket.EAI_NONAME, f"no such name: {host}")
            host, port = "127.0.0.1", real
        return await super().create_connection(protocol_factory, host, port, **more)

    def _found(self) -> dict[tuple[str, int], int]:
        written_at = os.stat(self._file).st_mtime_ns
        if written_at != self._read_at:
            self._names = {(host, port): real for host, port, real in json.loads(self._file.read_text())}
            self._read_at = written_at
        return self._names


def main() -> int:
    names = Path(sys.argv[1])
    with patch.object(process, "new_event_loop", lambda: NamedLoop(names)):
        return command.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
