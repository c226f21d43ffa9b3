"""A TLS context that follows its files: a new connection is made with what they hold now, those that exist
keep what they were made with.

The files are compared (time of change, inode, size) when a connection is made, at most once a second, and by
whoever calls `refresh` besides. What has changed is loaded into a context of its own, which is used only if
all of it can be: with a file that is broken or half written the one before stays in use, the log names the
file once, and each later comparison tries again.
"""

import logging
import os
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

COMPARE_SECONDS = 1.0

Fill = Callable[[ssl.SSLContext], float | None]
"""Loads everything into an empty context; gives when its own certificate expires, in seconds since the epoch,
None where it has none. TlsSettingsError."""
_Identity = tuple[tuple[int, int, int] | None, ...]


class FollowingContext(ssl.SSLContext):
    """Holds what the files had at first, and makes connections with what they have now. TlsSettingsError when
    made: whatever is wrong at the start is for the caller. One thread at a time."""

    def __new__(cls, protocol: int, *_: object) -> "FollowingContext":
        return super().__new__(cls, protocol)

    def __init__(self, protocol: int, fill: Fill, files: Callable[[], Sequence[Path]]) -> None:
        self._fill = fill
        self._files = files
        self._current: ssl.SSLContext | None = None
        self._seen = self._identity()
        self._compare_at = 0.0
        self._said = ""
        self.why_refused = ""
        """For messages: why a peer may end a connection that is made with it."""
        self.expires = fill(self)
        """When the own certificate of new connections expires, in seconds since the epoch."""

    def refresh(self) -> None:
        """Load the files again if they have changed. It raises nothing: whatever prevents it (a key
        that cannot be loaded, a file system that does not answer) leaves what is in use as it is."""
        try:
            seen = self._identity()
            if seen == self._seen:
                return
            fresh = ssl.SSLContext(self.protocol)
            expires = self._fill(fresh)
            unchanged = seen == self._identity()
        except Exception as error:  # the task that calls this is one of the service's: it must not end
            if self._said != str(error):
                self._said = str(error)
                _log.error(
                    "the certificates in use stay as they are, because the new ones cannot be: %s", error
                )
            return
        if not unchanged:
            return  # they change at this moment: the next comparison finds them as they are then
        self._seen, self._current, self.expires, self._said = seen, fresh, expires, ""
        places = ", ".join(str(path) for path in self._files())
        _log.info("new certificates are in use: %s%s", places, _until(expires))

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """As every context does; both kinds of event loop make connections by it."""
        self._compare()
        if self._current is None:
            return super().wrap_bio(*arguments, **options)
        return self._current.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """As every context does; for connections without an event loop."""
        self._compare()
        if self._current is None:
            return super().wrap_socket(*arguments, **options)
        return self._current.wrap_socket(*arguments, **options)

    def _compare(self) -> None:
        now = time.monotonic()
        if now >= self._compare_at:
            self._compare_at = now + COMPARE_SECONDS
            self.refresh()

    def _identity(self) -> _Identity:
        return tuple(_identity(path) for path in self._files())


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file may have another content, or other permissions."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ctime_ns, found.st_ino, found.st_size


def _until(expires: float | None) -> str:
    if expires is None:
        return ""
    return time.strftime("; the own one expires on %Y-%m-%d at %H:%M:%S UTC", time.gmtime(expires))
