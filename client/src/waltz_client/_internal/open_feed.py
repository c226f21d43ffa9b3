"""A feed from the arguments of `WaltzClient.feed`, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waltz_client._internal.core import ClientCore
from waltz_client.errors import UsageError
from waltz_client.feed import Feed, HeaderTest
from waltz_client.settings import ClientSettings

_LAST_ID = 2**63 - 1


def open_feed(
    core: ClientCore,
    settings: ClientSettings,
    partitions: int | Iterable[int],
    after: int | Mapping[int, int | None] | None,
    with_data: bool | HeaderTest,
    where: HeaderTest | None,
    until: int | Mapping[int, int] | None,
) -> Feed:
    """See `WaltzClient.feed`. UsageError, PartitionNotFoundError, PartitionInactiveError."""
    ids = [partitions] if isinstance(partitions, int) else list(partitions)
    if not ids or len(set(ids)) != len(ids):
        raise UsageError("a feed needs at least one partition, each once")
    for partition_id in ids:
        core.partitions.check(partition_id)
    places = {p: after[p] if isinstance(after, Mapping) else after for p in ids}
    if any(place is not None and not -1 <= place <= _LAST_ID for place in places.values()):
        raise UsageError("after is a transaction id, -1 (from the beginning) or None (from now on)")
    ends = None if until is None else {p: until[p] if isinstance(until, Mapping) else until for p in ids}
    if ends is not None and any(end > _LAST_ID for end in ends.values()):
        raise UsageError(f"until is a transaction id, at most {_LAST_ID}")
    readers = [(core.partitions.readers(p), place) for p, place in places.items()]
    return Feed(readers, core.rpc, settings, with_data=with_data, where=where, until=ends)
