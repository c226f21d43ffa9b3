"""The node report of the admin port (docs/protocol.md): what a tool that observes the node asks for again and
again.

The first report on a connection holds all partitions, each later one those that have changed since. So a tool
that observes a thousand partitions at rest costs a comparison of each, where the metrics are megabytes of
text. It shows what is durable, also while a job runs, but for the bytes of the files, which are those of now.
Owner of the state here: the connection, on the loop; nothing reads the disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from waltz_storage.engine.storage_manager import StorageManager

FORMAT = 1

_State = tuple[int, int, int, int, int, int, int, int] | None
"""Session, low-water mark, local low-water mark, flags, available (1) or not, last transaction, bytes of its
files, fence; None for a partition that is assigned and could not be opened."""


class NodeReport:
    """What one connection was sent. Bounded: one state for each partition of the node."""

    def __init__(self, manager: StorageManager, disk: Callable[[], dict[str, object]]) -> None:
        self._manager = manager
        self._disk = disk
        self._sent: dict[int, _State] = {}

    def text(self, *, everything: bool) -> str:
        """The next report. `gone`: partitions of the last one that the node has no longer."""
        if everything:
            self._sent = {}
        now = self._states()
        gone = [number for number in self._sent if number not in now]
        none = ()  # a state that no partition has
        changed = {
            str(number): state for number, state in now.items() if self._sent.get(number, none) != state
        }
        self._sent = now
        report = {"format": FORMAT, "partitions": changed, "gone": gone, "disk": self._disk()}
        return json.dumps(report, separators=(",", ":"))

    def _states(self) -> dict[int, _State]:
        manager = self._manager
        found: dict[int, _State] = dict.fromkeys(list(manager.damaged))
        for number, (partition, shown) in manager.public().items():
            info = shown.info
            found[number] = (
                info.session_id,
                info.low_water_mark,
                info.local_low_water_mark,
                info.flags,
                int(manager.is_available(partition, shown)),
                shown.max_txid,
                partition.log_bytes,
                shown.fence,
            )
        return found
