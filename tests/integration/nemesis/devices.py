"""Two faults of a disk: a small file system of its own that fills up, and sync calls that fail (libfiu)."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DISK_MIB = 384
_FIU_SECONDS = 5.0
_EIO = 5


class SmallDisk:
    """A file system in memory with a ballast file that takes all the room, or none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    async def fill(self) -> None:
        await asyncio.to_thread(self._fill)

    def _fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            for piece in (1 << 20, 1 << 12):
                try:
                    while file.write(bytes(piece)) == piece:
                        pass
                except OSError:
                    pass  # full, for pieces of this size

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk | None]:
    """Mounted at `path` from entry to exit; None where that is not permitted, and then the reason was
    printed."""
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(path)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        print("no full disks: mounting a small file system needs root and the mount command", flush=True)
        yield None
        return
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"no full disks: {done.stderr.strip()}", flush=True)
        yield None
        return
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", str(path)], check=True)


class FailingSyncs:
    """Makes fsync and fdatasync of a process started under `wrapper` fail at random with "Input/output
    error"."""

    def __init__(self, directory: Path) -> None:
        self._prefix = directory / "fiu"
        self.wrapper = ("fiu-run", "-x", "-f", str(self._prefix))

    async def begin(self, pid: int) -> bool:
        """They fail until the process ends; False when the process could not be reached (it is not up
        yet)."""
        command = f"enable_random name=posix/io/sync/*,probability=0.3,failinfo={_EIO}"
        process = await asyncio.create_subprocess_exec(
            "fiu-ctrl",
            "-f",
            str(self._prefix),
            "-c",
            command,
            str(pid),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(_FIU_SECONDS):
                return await process.wait() == 0
        except TimeoutError:
            return False
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def failing_syncs(directory: Path) -> FailingSyncs | None:
    """None where libfiu's tools are missing, and then the reason was printed."""
    if shutil.which("fiu-run") is None or shutil.which("fiu-ctrl") is None:
        print("no failing sync calls: fiu-run is not installed (Debian: fiu-utils)", flush=True)
        return None
    directory.mkdir(parents=True, exist_ok=True)
    return FailingSyncs(directory)
