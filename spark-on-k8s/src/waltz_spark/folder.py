"""A folder of small files that outlives a driver, on any file system that pyarrow knows: a path, or a URI
(file, s3, gs, hdfs, abfs). In a URI a # ends the path, and so does a ? (behind which an object store has its
options): where that would only cut it off, the place is refused.

Files are made once and never changed. On a local file system (a mounted volume) exactly one of several
writers makes a file; elsewhere the last one may overwrite the first, if they come at the same moment.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import Any


class Folder:
    """See the module. OSError and ValueError come through: the caller knows what the folder is for."""

    def __init__(self, location: str) -> None:
        from pyarrow import fs

        self.location = location
        if ":" in location:
            _check_uri(location)
            self._fs, path = fs.FileSystem.from_uri(location)
        else:
            self._fs, path = fs.LocalFileSystem(), location
        self.is_local = isinstance(self._fs, fs.LocalFileSystem)
        self.path = os.path.abspath(path) if self.is_local else path.rstrip("/")

    @property
    def file_system(self) -> Any:
        """The pyarrow file system."""
        return self._fs

    def full_path(self, name: str) -> str:
        """Path of a file for the file system."""
        return f"{self.path}/{name}"

    def uri(self, name: str) -> str:
        """The same for Spark."""
        if self.is_local:
            return f"file://{self.full_path(name)}"
        scheme = self.location.partition(":")[0]
        return f"{scheme}://{self.full_path(name)}"

    def names(self) -> list[str]:
        """Names of what is in it; none when it is not there."""
        from pyarrow import fs

        selector = fs.FileSelector(self.path, allow_not_found=True)
        return sorted(info.base_name for info in self._fs.get_file_info(selector))

    def read(self, name: str) -> bytes:
        """Content of a file."""
        with self._fs.open_input_stream(self.full_path(name)) as stream:
            content: bytes = stream.readall()
        return content

    def create(self, name: str, content: bytes) -> bool:
        """Make a file with its whole content, durably; False when there is one of that name, which stays as
        it is."""
        from pyarrow import fs

        target = self.full_path(name)
        self._fs.create_dir(target.rpartition("/")[0], recursive=True)
        if self._fs.get_file_info(target).type is not fs.FileType.NotFound:
            return False
        if not self.is_local:
            with self._fs.open_output_stream(target) as stream:
                stream.write(content)
            return True
        temporary = f"{target}.{uuid.uuid4().hex}.tmp"
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        _sync_directory(os.path.dirname(target))
        return True

    def delete(self, name: str) -> None:
        """Delete a file; nothing when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_file(self.full_path(name))


def _check_uri(location: str) -> None:
    if location.startswith("/"):
        return
    for character, written in ("#", "%23"), ("?", "%3F"):
        if character in location and (character == "#" or location.startswith("file:")):
            raise ValueError(
                f"what follows {character} is no part of the path in a URI, where it is written {written}"
            )


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
