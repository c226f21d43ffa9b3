"""Processes of a benchmark: started with a pipe as standard input, so that none outlives its parent, and
their CPU time."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent


class BenchError(Exception):
    """A part of the benchmark did not do its work; the message says which."""


def written_bytes(pids: Sequence[int]) -> int:
    """Bytes that processes have caused to be written to a disk (Linux: pages as they become dirty)."""
    return sum(psutil.Process(pid).io_counters().write_bytes for pid in pids)


class Child:
    """One role: its standard output line by line (read by a thread), and its end."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True, name=f"output of {name}")
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def read_line(self, timeout_seconds: float) -> str:
        """The next line of output; BenchError when the process ends or is silent for too long."""
        try:
            line = self._lines.get(timeout=timeout_seconds)
        except queue.Empty:
            raise BenchError(f"{self.name}: no output for {timeout_seconds:g} s") from None
        if line is None:
            raise BenchError(f"{self.name}: ended early with code {self._process.wait(5)}")
        return line

    def wait_line(self, wanted: str, timeout_seconds: float = 20.0) -> None:
        """Wait for the line `wanted`."""
        line = self.read_line(timeout_seconds)
        if line != wanted:
            raise BenchError(f"{self.name}: printed {line!r} instead of {wanted!r}")

    def send_line(self, line: str) -> None:
        """Write one line to the process's standard input."""
        if self._process.stdin is not None:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def stop(self) -> None:
        """End the process: close its standard input, then the hard way."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(3)
        if self._process.stdout is not None:
            self._process.stdout.close()


def start_role(module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
    """Start `python -m module arguments` from the root of the repository."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
    )
    return Child(" ".join([module, *arguments[:2]]), process)


class CpuWatch:
    """CPU seconds (user and system) used per role between `start` and `stop`; a process that died counts to
    its end."""

    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        self._processes = {role: [psutil.Process(pid) for pid in of] for role, of in pids.items()}
        self._before: dict[str, float] = {}

    def _now(self) -> dict[str, float]:
        return {role: sum(map(cpu_seconds, of)) for role, of in self._processes.items()}

    def start(self) -> None:
        self._before = self._now()

    def stop(self) -> dict[str, float]:
        return {role: seconds - self._before[role] for role, seconds in self._now().items()}


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time of a process so far; 0 when it is gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def resident_mib(pid: int) -> float:
    """Resident memory of a process in MiB."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20
