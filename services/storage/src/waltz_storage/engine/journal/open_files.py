"""The files that are open below the journal, and when they may be closed.

Invariants:

* The kernel reports a change that it could not write only to descriptors that were open at the time, and
  reports it once. So a file that was changed stays open until a sync through the same descriptor has
  returned; a file that is closed needs none.
* Syncs are made under `_settling`. So whoever holds it and finds a file clean knows that its sync returned.
* A failed sync or close while the journal is in use ends the journal.

Owner: the thread that runs jobs; whoever settles uses the files too.
"""

from __future__ import annotations

import errno
import threading

from waltz_storage.engine.journal.shared_file import SharedFile


class OpenFiles:
    """By path. See the module for owner and invariants."""

    def __init__(self) -> None:
        self._shared: dict[str, SharedFile] = {}
        self._lock = threading.Lock()  # of `_shared` and the users in it, and of `_unsynced`
        self._kept_open = 0  # files without a user, for what is not made in them
        self._unsynced: dict[SharedFile, None] = {}
        """Files without a user that wait only for a sync."""
        self._settling = threading.Lock()
        self.journaling = False
        """Changes go through the journal."""
        self.failed: str | None = None
        """Why nothing is made durable any longer."""

    def check(self) -> None:
        """`OSError` when the journal has failed."""
        if self.failed is not None:
            raise OSError(errno.EIO, self.failed)

    def _fail(self, error: Exception) -> None:
        text = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        reason = f"the journal of this node failed ({text or error})"
        self.failed = self.failed or f"{reason}: nothing is taken until it has been started again"

    def _let_go(self, shared: SharedFile) -> None:
        """One user less."""
        with self._lock:
            shared.users -= 1
            if shared.users:
                return
            if shared.pending and self.journaling:
                self._kept_open += 1
                return
            if self._needs_sync(shared):
                self._unsynced[shared] = None
                return
        self._drop(shared)

    def _needs_sync(self, shared: SharedFile) -> bool:
        """It is not closed as it is. A deleted one is, and after a failure the replay sees to everything."""
        named = self._shared.get(shared.path) is shared
        return shared.dirty and named and self.journaling and self.failed is None

    def _drop(self, shared: SharedFile) -> None:
        """Nobody uses it and nothing is left to be made, or to be synced."""
        with self._lock:
            # Again, or once more: `_let_go` has given the lock back. What waits after the end is never made.
            if shared.users or (shared.pending and self.journaling):
                return
            if self._needs_sync(shared):
                self._unsynced[shared] = None
                return
            if self._shared.get(shared.path) is shared:
                del self._shared[shared.path]
            self._unsynced.pop(shared, None)
            below, shared.below = shared.below, None
        try:
            if below is not None:
                below.close()
        except OSError as error:
            if not self.journaling:
                raise
            self._fail(error)

    def _sync_below(self, shared: SharedFile | None) -> None:
        """A file that is closed, or deleted, needs no sync. Under `_settling`. `OSError`: the journal has
        ended, whatever the error."""
        with self._lock:
            if shared is None or not shared.dirty:
                return
            shared.users += 1
            self._unsynced.pop(shared, None)
        try:
            shared.sync_below()
        except OSError as error:
            self._fail(error)
            raise
        finally:
            self._let_go(shared)

    def _close_unsynced(self) -> None:
        """Sync and close the files that nobody uses. Under `_settling`. `OSError`."""
        for shared in list(self._unsynced):
            self._sync_below(shared)
