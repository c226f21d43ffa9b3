"""A cluster that runs next to the tests of a module, and commands run in this process against it."""

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.integration.processes import STORAGE, WALTZ
from waltz_testkit.ports import free_ports
from waltz_tools.__main__ import run

SECONDS = 90.0
RAN: dict[str, set[str]] = {}
"""The first two words of each command run in this session -> every option that was given to it, as it was
spelled."""


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self) -> dict[str, list[dict[str, object]]]:
        """Its one object."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def facts(self) -> dict[str, object]:
        """The same, for results that are no tables."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def error(self, code: int = 1) -> str:
        """The one line on standard error."""
        lines = self.err.splitlines()
        assert (self.code, len(lines)) == (code, 1), self
        assert lines[0].startswith("Error: ")
        return lines[0].removeprefix("Error: ")


def run_command(config: str, *arguments: str, stdin: bytes = b"") -> Done:
    """One `waltz` command in this process, with WALTZ_CONFIG set."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    os.environ["WALTZ_CONFIG"] = config
    RAN.setdefault(" ".join(arguments[:2]), set()).update(word for word in arguments if word.startswith("-"))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = run(list(arguments))
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
        raw = out.buffer.getvalue()
        return Done(int(code), raw.decode(errors="replace"), err.buffer.getvalue().decode(), raw)
    finally:
        sys.stdin = before
        del os.environ["WALTZ_CONFIG"]


@dataclass(frozen=True)
class Live:
    """A running `waltz local up`. `config` is the file it prints."""

    config: str
    directory: Path
    storage_nodes: tuple[str, ...]
    servers: tuple[str, ...]
    pids: dict[str, int] = field(default_factory=dict)

    def run(self, *arguments: str, stdin: bytes = b"") -> Done:
        """One command with the cluster's configuration in the environment; exit code 0 is not required."""
        return run_command(self.config, *arguments, stdin=stdin)

    def ok(self, *arguments: str, stdin: bytes = b"") -> Done:
        """One command that succeeds."""
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, (arguments, done)
        return done

    def keys(self, role: str) -> dict[str, object]:
        """The configuration of a role."""
        found = yaml.safe_load((self.directory / "conf" / f"{role}.yaml").read_text())
        assert isinstance(found, dict)
        return found

    def admin(self, number: int) -> str:
        """host:admin_port of a storage node."""
        return f"127.0.0.1:{self.keys(f'storage-{number}')['storage.admin.port']}"

    def http(self, number: int) -> str:
        """host:http_port of a server."""
        return f"127.0.0.1:{self.keys(f'server-{number}')['server.jetty.port']}"

    def data(self, number: int) -> Path:
        """The directory of a storage node."""
        return Path(str(self.keys(f"storage-{number}")["storage.directory"]))

    def until(self, *arguments: str) -> Done:
        """Run a command again and again until it succeeds."""
        deadline = time.monotonic() + SECONDS
        while (done := self.run(*arguments)).code != 0:
            assert time.monotonic() < deadline, done
            time.sleep(0.1)
        return done

    @contextlib.contextmanager
    def spare_node(self, directory: Path) -> Iterator["Spare"]:
        """A further storage node that nobody knows yet, in `directory`."""
        (directory / "data").mkdir(parents=True, exist_ok=True)
        keys = self.keys("storage-1") | {"storage.directory": str(directory / "data")}
        names = [name for name in keys if name.endswith(".port")]
        keys |= dict(zip(names, free_ports(len(names)), strict=True))
        path = directory / "spare.yaml"
        path.write_text(yaml.safe_dump(keys))
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen([*STORAGE, str(path)], stdout=log, stderr=log)
        try:
            admin = int(str(keys["storage.admin.port"]))
            until_open(admin, process, directory / "log")
            yield Spare(int(str(keys["storage.port"])), admin, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS)


@dataclass(frozen=True)
class Spare:
    """The ports of a further node."""

    port: int
    admin_port: int
    process: "subprocess.Popen[bytes]"

    @property
    def node(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        return f"127.0.0.1:{self.admin_port}"


def until_open(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until a process listens; fails with its log when it ends before that."""
    deadline = time.monotonic() + SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)


@contextlib.contextmanager
def live_cluster(directory: Path, *options: str) -> Iterator[Live]:
    """`waltz local up` from entry to exit, with every process in the log directory of the cluster."""
    command = [*WALTZ, "local", "up", "--data", str(directory), "--output", "json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, "the cluster did not come up"
            facts = json.loads(line)
            yield Live(
                facts["config"],
                Path(facts["directory"]),
                tuple(facts["storage_nodes"]),
                tuple(facts["servers"]),
                facts["pids"],
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS)
