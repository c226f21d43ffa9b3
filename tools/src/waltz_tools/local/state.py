"""What a cluster directory remembers between two runs: shape, ports, and which processes were started.

Layout of a cluster directory:

    cluster.json   shape and ports (written before anything starts)
    lock           held by the process that runs the cluster
    pids/ROLE      pid and start time of each process, to find left-overs after a crash
    conf/          configuration files of every role and of clients (rendered anew at every start)
    logs/ROLE.log  output of each process
    zookeeper/  storage-N/   data

A directory with anything else and without `cluster.json` is its user's: nothing of it is touched.

Single writer: the process that holds `lock`.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO
from uuid import UUID

import psutil

from waltz_runtime.ports import PortReservations
from waltz_tools.errors import DirectoryInUseError, LocalClusterError, PortTakenError
from waltz_tools.local import private

FORMAT = 1
_FOLDER = re.compile(r"conf|logs|pids|zookeeper|storage-\d+")
_ROLE = re.compile(r"zookeeper|storage-\d+|server-\d+")


@dataclass(slots=True)
class ClusterState:
    """Contents of cluster.json. `ports` maps role to port name to number. `joining`: the storage nodes of a
    seeded cluster that have ports and not all of their replicas yet. It is written with their ports, so that
    a start after an interruption completes the join; a node that has joined and was removed stays out."""

    partitions: int
    tls: bool
    storage_nodes: int
    servers: int
    seeded: bool = False
    cluster_key: str | None = None
    joining: list[str] = field(default_factory=list)
    ports: dict[str, dict[str, int]] = field(default_factory=dict)
    format: int = FORMAT


def _wrong_in(state: ClusterState) -> str:
    """What a person or another program has made of the file; empty when it is what `save` writes."""
    kinds: dict[str, type] = {"tls": bool, "seeded": bool, "joining": list, "ports": dict}
    kinds |= dict.fromkeys(("partitions", "storage_nodes", "servers"), int)
    kinds |= {} if state.cluster_key is None else {"cluster_key": str}
    for name, kind in kinds.items():
        value = getattr(state, name)
        if type(value) is not kind:
            return f"{name} = {value!r:.40}"
    try:
        UUID(state.cluster_key or str(UUID(int=0)))
    except ValueError:
        return f"cluster_key = {state.cluster_key!r:.40}"
    for role, ports in state.ports.items():
        numbers_of = ports.values() if isinstance(ports, dict) else [None]
        if not _ROLE.fullmatch(role) or any(type(n) is not int or not 0 < n < 65536 for n in numbers_of):
            return f"ports of {role!r:.40}"
    strangers = [role for role in state.joining if role not in state.ports]
    return f"joining {strangers[0]!r:.40}" if strangers else ""


class ClusterDirectory:
    """A cluster directory, locked while this object is open.

    Invariants: at most one process holds the lock; cluster.json is replaced atomically.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.conf_dir = path / "conf"
        self.logs_dir = path / "logs"
        self._pids_dir = path / "pids"
        self._lock: IO[str] | None = None

    def open(self) -> None:
        """Make the folders and take the lock; DirectoryInUseError when another process has it. A directory
        that holds something else than a cluster, or whose name is not UTF-8, is refused before anything in it
        changes."""
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            raise LocalClusterError(
                f"{self.path} is no name in UTF-8, and ZooKeeper cannot open it: name another directory"
            ) from None
        try:
            if self._holds_something_else() and self.load() is None:
                raise LocalClusterError(
                    f"{self.path} is not empty and holds no cluster of `waltz local up`: name another directory"
                )
            if not self.path.is_dir():  # one that was there before is its user's to close
                private.make_folder(self.path)
            for folder in (self.conf_dir, self.logs_dir, self._pids_dir):
                private.make_folder(folder)
            lock = os.fdopen(
                private.opener(str(self.path / "lock"), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC),
                "a+",
            )
        except OSError as error:
            raise LocalClusterError(f"cannot use {self.path} for a cluster: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise DirectoryInUseError(
                f"{self.path} is in use by another `waltz local up`{f' (pid {owner})' if owner else ''}"
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _holds_something_else(self) -> bool:
        """Whether there is more than what a start makes before it writes cluster.json: one that is
        interrupted there leaves the lock, and folders with nothing in them. What ext4 makes of its own does
        not count. OSError."""
        if not self.path.is_dir():
            return False
        for entry in self.path.iterdir():
            if entry.name == "lost+found":  # of a file system that is new, for root only
                ours = entry.is_dir()
            elif entry.is_dir():
                ours = _FOLDER.fullmatch(entry.name) is not None and not any(entry.iterdir())
            elif entry.name == "lock":
                ours = not (text := entry.read_bytes()) or text.isdigit()
            else:
                ours = entry.name == "cluster.json.new"
            if not ours:
                return True
        return False

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def load(self) -> ClusterState | None:
        """The remembered state, None for a new directory; LocalClusterError when the file cannot be
        understood."""
        file = self.path / "cluster.json"
        try:
            value = json.loads(file.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LocalClusterError(f"{file} cannot be read: {error}") from None
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise LocalClusterError(f"{file} was not written by this version of waltz")
        try:
            state = ClusterState(**value)
        except TypeError as error:
            raise LocalClusterError(f"{file} cannot be parsed: {error}") from None
        if wrong := _wrong_in(state):
            raise LocalClusterError(f"{file} cannot be parsed: {wrong} is not what this version writes")
        return state

    def save(self, state: ClusterState) -> None:
        """Replace cluster.json."""
        new = self.path / "cluster.json.new"
        with open(new, "w", opener=private.opener) as file:
            json.dump(asdict(state), file, indent=2, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / "cluster.json")

    def record_pid(self, role: str, pid: int) -> None:
        """Remember a started process, so that the next start finds it if this one crashes."""
        try:
            started = psutil.Process(pid).create_time()
        except psutil.Error:
            return
        private.write_text(self._pids_dir / role, f"{pid} {started}")

    def forget_pid(self, role: str) -> None:
        (self._pids_dir / role).unlink(missing_ok=True)

    def kill_left_overs(self) -> list[str]:
        """End processes of an earlier run whose parent crashed where the kernel did not do it; the roles
        found alive."""
        found = []
        for file in sorted(self._pids_dir.iterdir()):
            if not _ROLE.fullmatch(file.name):
                continue  # not one of ours
            try:
                pid, started = file.read_text().split()
                process = psutil.Process(int(pid))
                # The start time distinguishes a left-over from a stranger that got the same pid.
                if abs(process.create_time() - float(started)) < 0.5:
                    process.kill()
                    process.wait(timeout=10)
                    found.append(file.name)
            except (ValueError, OSError, psutil.Error):
                pass
            file.unlink(missing_ok=True)
        return found


# Storage and admin ports of a storage node are written in ZooKeeper and in every replica state: they are the
# node's name.
IDENTITY_PORTS = frozenset({"storage", "admin"})


def settle_ports(
    state: ClusterState,
    wanted: Mapping[str, tuple[str, ...]],
    rng: random.Random,
    reserved: PortReservations,
) -> None:
    """Give every role of `wanted` (role → port names) its ports, and hold them in `reserved`: the remembered
    ones where they are free, new ones otherwise. PortTakenError for a taken port that is part of the
    cluster's identity (no role is changed then)."""
    missing: list[tuple[str, str]] = []
    settled: dict[str, dict[str, int]] = {role: dict(ports) for role, ports in state.ports.items()}
    for role, names in wanted.items():
        ports = settled.setdefault(role, {})
        for name in names:
            number = ports.get(name)
            if number is not None and reserved.hold(number):
                continue
            if number is not None and name in IDENTITY_PORTS:
                raise PortTakenError(
                    f"port {number} ({name} port of {role}) is in use by another process; the cluster knows this node by it: "
                    "free the port and start again"
                )
            missing.append((role, name))
    for (role, name), number in zip(missing, reserved.pick(len(missing), rng), strict=True):
        settled[role][name] = number
    state.ports = settled
