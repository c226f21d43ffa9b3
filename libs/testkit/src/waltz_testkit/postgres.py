"""A PostgreSQL server of a test's own: fresh files in a temporary directory, a Unix socket in it, no TCP
port.

Uses the machine's binaries (`/usr/lib/postgresql/*/bin` as Debian has them, or PATH). They refuse to run as
root, so root runs them as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_START_SECONDS = 60.0
_USER = "waltz"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def find_binaries() -> Path | None:
    """The directory of `initdb` and `postgres`, newest version first; None when the machine has none."""
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: _version(path.parent.name), reverse=True
    )
    on_path = shutil.which("initdb")
    for directory in [*debian, *([Path(on_path).resolve().parent] if on_path else [])]:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    return None


def _version(name: str) -> int:
    return int(name) if name.isdigit() else 0


def _unprivileged() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("there is neither a user postgres nor nobody to run PostgreSQL as")


class PostgresServer:
    """A server of its own in `directory`. Owner: the thread that started it; when that ends, so does the
    server."""

    def __init__(self, directory: Path, binaries: Path) -> None:
        self.directory = directory
        self._binaries = binaries
        self._owner = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy's address of one of its databases, for psycopg 3."""
        return f"postgresql+psycopg://{_USER}@/{database}?host={self.directory}"

    def create_database(self, name: str) -> str:
        """A new, empty database; its address."""
        self._run("createdb", "-h", str(self.directory), "-U", _USER, name)
        return self.url(name)

    def crash_and_restart(self) -> None:
        """End it without a shutdown, and bring it up again: connections break, what was not committed is
        gone."""
        self.stop()
        self.start()

    def initialise(self) -> None:
        """Make the files."""
        if self._owner is not None:
            os.chown(self.directory, self._owner.pw_uid, self._owner.pw_gid)
        options = ("-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self._run("initdb", "-D", str(self.directory / "data"), *options)

    def start(self) -> None:
        """Start it and wait until it answers; RuntimeError with its log when it does not."""
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.directory)}
        settings |= {"fsync": "off", "max_connections": "50"}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        parent = os.getpid()
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.directory / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: _end_with(parent),  # noqa: PLW1509 -- two system calls, no lock is taken
                **self._as_owner(),
            )
        deadline = time.monotonic() + _START_SECONDS
        ready: list[str | Path] = [self._binaries / "pg_isready", "-q", "-h", self.directory]
        while subprocess.run(ready, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self.directory / 'log').read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_START_SECONDS)

    def _as_owner(self) -> dict[str, Any]:
        owner = self._owner
        own = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        env = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.directory), "LC_ALL": "C"}
        return {"cwd": self.directory, "env": env, **own}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_START_SECONDS,
            **self._as_owner(),
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout}")


def _end_with(parent: int) -> None:
    """In the new process: the kernel sends SIGQUIT (PostgreSQL's immediate shutdown) when the thread that
    started it ends."""
    if sys.platform.startswith("linux"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


@contextlib.contextmanager
def postgres_server(binaries: Path) -> Iterator[PostgresServer]:
    """A server, stopped and removed at the end. Its files are not synced: a crash of the machine is not what
    tests try."""
    # Not below pytest's directories: a socket's path has 107 characters at most, and the unprivileged user
    # has to reach it.
    directory = Path(tempfile.mkdtemp(prefix="waltz-pg-", dir="/tmp"))
    try:
        server = PostgresServer(directory, binaries)
        server.initialise()
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
