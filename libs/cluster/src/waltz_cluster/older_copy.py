"""Is ZooKeeper's metadata of a partition older than what one of its storage nodes remembers? Pure (rule A8,
ADR 8).

The owner of a session takes its number from ZooKeeper, then asks the nodes, has them write the session down
(*set low-water mark*), lists them in ZooKeeper, and only then appends. So, as long as ZooKeeper has lost
nothing,

1. no node has written down a session later than the one that ZooKeeper holds, and
2. no node holds records of a session of which ZooKeeper knows nothing.

What contradicts this was once in ZooKeeper and is not there now: its data were restored from an older copy.
The evidence is on the nodes' disks, so it lasts until somebody settles it.
"""

from waltz_cluster.serializers import PartitionMetadata
from waltz_protocol.types import SessionInfo

FENCE_REACH = 65_536
"""So far above the session that ZooKeeper holds a fence may be for the next session to be numbered above it.
It is little against what an empty copy accepts, so new nodes still accept the numbers that follow. A fence
beyond was raised by no session."""

_COMPLETED, _TOOK_PART, _METADATA_LOST = "has completed session", "took part in session", "metadata was lost"


def is_evidence(reason: str) -> bool:
    """Whether the words in which a server says why it refuses a copy are those of `evidence`."""
    return any(words in reason for words in (_COMPLETED, _TOOK_PART, _METADATA_LOST))


def last_listed(recorded: PartitionMetadata) -> int:
    """The last session that is known to have listed its replicas, so the last one that can have appended; -1
    for none."""
    return max((state.session_id for state in recorded.replicas.values()), default=-1)


def unlisted_part(recorded_session_id: int, listed: int, info: SessionInfo, max_txid: int) -> bool:
    """Whether a node may have taken part in a session that ZooKeeper does not list it for.

    It has written down a session after the one that ZooKeeper lists it for (`recorded_session_id`) and not
    before the last that listed anybody (`listed`), and it holds more than it held then. Mostly an
    interrupted recovery has copied that to it; but if ZooKeeper's copy is of the same session and older than
    the listing, these records may be acknowledged.
    """
    return recorded_session_id < info.session_id >= listed and max_txid > info.low_water_mark


def evidence(
    recorded: PartitionMetadata, connect_string: str, info: SessionInfo, max_txid: int
) -> str | None:
    """What the node's answer proves to be missing in `recorded`, to be put after its name; else None.

    `recorded`: what ZooKeeper holds before the next session takes its number. It must be read again before
    evidence is believed: a session that began after it was read looks the same.
    """
    if info.session_id > recorded.session_id:
        given = recorded.session_id
        later = (
            f"later than the {given} that ZooKeeper gave out" if given >= 0 else "and ZooKeeper knows of none"
        )
        return f"{_COMPLETED} {info.session_id}, {later}"
    if not recorded.replicas:
        if max_txid >= 0 or info.low_water_mark >= 0:
            held = f"holds records up to {max_txid} (low-water mark {info.low_water_mark})"
            return f"{held}, and ZooKeeper lists no replica: {_METADATA_LOST}"
        return None
    # Whoever was only filled ends with the mark that it was given; one that holds more was listed and voted.
    if (
        connect_string not in recorded.replicas
        and info.session_id > last_listed(recorded)
        and max_txid > info.low_water_mark
    ):
        return f"{_TOOK_PART} {info.session_id}, in which ZooKeeper lists nobody"
    return None
