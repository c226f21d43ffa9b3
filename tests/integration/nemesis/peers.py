"""Finds which process made a connection of the loopback interface (Linux: /proc; elsewhere nobody is
known)."""

from collections.abc import Callable, Mapping
from pathlib import Path

UNKNOWN = "unknown"
_TABLE = Path("/proc/net/tcp")


class Peers:
    """Finds the role at the other end. `pids` is asked at every connection: processes come and go."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids = pids

    def who(self, source_port: int, target_port: int) -> str:
        """The role that connected from `source_port` to `target_port`, or "unknown"."""
        inode = _inode(source_port, target_port)
        if inode is not None:
            link = f"socket:[{inode}]"
            for role, pid in self._pids().items():
                if _has_open(pid, link):
                    return role
        return UNKNOWN


def _inode(source_port: int, target_port: int) -> str | None:
    """Inode of the socket on the connecting side."""
    local, remote = f":{source_port:04X}", f":{target_port:04X}"
    try:
        lines = _TABLE.read_text().splitlines()
    except OSError:
        return None
    for line in lines[1:]:
        fields = line.split()
        if fields[1].endswith(local) and fields[2].endswith(remote):
            return fields[9]
    return None


def _has_open(pid: int, link: str) -> bool:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(entry.readlink()) == link:
                    return True
            except OSError:
                pass  # closed while we looked
    except OSError:
        pass  # the process ended
    return False
