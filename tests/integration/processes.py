"""Programs run to their end, and clusters that must come out of a mistake unharmed."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.integration.workload import History, check_log
from waltz_client import WaltzClient
from waltz_testkit.ports import free_ports
from waltz_tools.local import LocalCluster

WALTZ = (sys.executable, "-m", "waltz_tools")
STORAGE = (sys.executable, "-m", "waltz_storage")
SERVER = (sys.executable, "-m", "waltz_server")
_PROGRAM_SECONDS = 90.0


@dataclass(frozen=True)
class Ended:
    """What a program left behind."""

    code: int
    out: str
    err: str

    def one_error(self, code: int = 1) -> str:
        """The one line that says what is wrong; fails when there are more, a stack trace, or another exit
        code."""
        errors = [line for line in self.err.splitlines() if line.startswith("Error: ")]
        assert "Traceback" not in self.err, self.err
        assert "[error" not in self.err, self.err
        assert (self.code, len(errors)) == (code, 1), (self.code, self.out, self.err)
        assert self.err.splitlines()[-1] == errors[0], self.err
        return errors[0]


async def run_program(
    *command: str, stdin: bytes = b"", directory: Path | None = None, seconds: float = _PROGRAM_SECONDS
) -> Ended:
    """Run a program that is expected to end on its own."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=directory,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate(stdin)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def waltz(*arguments: str, stdin: bytes = b"") -> Ended:
    """One `waltz` command."""
    return await run_program(*WALTZ, *arguments, stdin=stdin)


@cache
def _owner_rules() -> tuple[str, ...] | None:
    """A prefix under which file permissions hold: nothing for a person, root without its privilege over
    files."""
    if os.geteuid() != 0:
        return ()
    drop = (
        "setpriv",
        "--bounding-set=-dac_override,-dac_read_search",
        "--inh-caps=-dac_override,-dac_read_search",
    )
    if (
        shutil.which("setpriv") is None
        or subprocess.run([*drop, "true"], check=False, capture_output=True).returncode
    ):
        return None
    return drop


def ruled_by_permissions() -> tuple[str, ...]:
    """The prefix, or the test is skipped where root cannot give up its privilege."""
    prefix = _owner_rules()
    if prefix is None:
        pytest.skip("root cannot give up its privilege over file permissions here")
    return prefix


@contextmanager
def small_disk(path: Path, size_kib: int, *, used: bool = False) -> Iterator[Path]:
    """A file system of its own at `path`, with `used` full from the start; skips where mounting is not
    permitted."""
    path.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(path))
    try:
        if used:
            with (path / "ballast").open("wb", buffering=0) as ballast:
                try:
                    while ballast.write(bytes(4096)) == 4096:
                        pass
                except OSError:
                    pass  # full
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@contextmanager
def read_only(path: Path) -> Iterator[Path]:
    """`path` and all below cannot be written, not even by root; skips where mounting is not permitted."""
    _mount("--bind", str(path), str(path))
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def _mount(*arguments: str) -> None:
    done = (
        subprocess.run(["mount", *arguments], check=False, capture_output=True, text=True)
        if shutil.which("mount")
        else None
    )
    if done is None or done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip() if done else 'no mount command'}")


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory with its bytes."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


@dataclass
class Patient:
    """A running cluster that others make mistakes with; it must not notice."""

    cluster: LocalCluster
    history: History = field(default_factory=History)
    count: int = 0

    async def append(
        self, client: WaltzClient, data: bytes | None = None, deadline_seconds: float = 60
    ) -> None:
        """One acknowledged transaction, remembered."""
        self.count += 1
        payload = f"{self.count}".encode() if data is None else data
        partition = self.count % client.num_partitions
        done = await client.append(partition=partition, data=payload, deadline_seconds=deadline_seconds)
        self.history.committed(payload, partition, done.transaction_id)

    async def is_unharmed(self) -> None:
        """It takes an append, and its log holds exactly what was acknowledged."""
        async with WaltzClient.connect(self.cluster.client_config) as client:
            await self.append(client)
        verdict = await check_log(self.cluster.client_config, self.history)
        assert verdict.passed, str(verdict)

    def config(self, path: Path, role: str, **changes: object) -> str:
        """The configuration of a role with fresh ports and `changes` (`__` for a dot; None removes), written
        to `path`."""
        keys: dict[str, object] = yaml.safe_load(self.cluster.config_path(role).read_text())
        names = [key for key in keys if key.endswith(".port")]
        keys |= dict(zip(names, free_ports(len(names)), strict=True))
        keys |= {key.replace("__", "."): value for key, value in changes.items()}
        file = path / f"{role}.yaml"
        file.write_text(yaml.safe_dump({key: value for key, value in keys.items() if value is not None}))
        return str(file)

    def client(self, path: Path, **changes: object) -> str:
        """The configuration of clients and commands with `changes`."""
        return self.config(path, "client", **changes)
