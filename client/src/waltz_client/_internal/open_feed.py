"""A feed from the arguments of `WaltzClient.feed`, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from waltz_client._internal.arguments import LAST_ID, for_partition, partition_numbers, whole_number
from waltz_client._internal.core import ClientCore
from waltz_client.errors import UsageError
from waltz_client.feed import Feed, HeaderTest
from waltz_client.settings import ClientSettings


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
    ids = partition_numbers(partitions)
    if not ids or len(set(ids)) != len(ids):
        raise UsageError("a feed needs at least one partition, each once")
    for partition_id in ids:
        core.partitions.check(partition_id)
    places = {p: _place(for_partition("after", after, p)) for p in ids}
    ends = None
    if until is not None:
        ends = {p: _end(for_partition("until", until, p)) for p in ids}
    readers = [(core.partitions.readers(p), place) for p, place in places.items()]
    return Feed(readers, core.rpc, settings, with_data=with_data, where=where, until=ends)


def _place(after: int | None) -> int | None:
    if after is None:
        return None
    place = whole_number("after", after)
    if not -1 <= place <= LAST_ID:
        raise UsageError("after is a transaction id, -1 (from the beginning) or None (from now on)")
    return place


def _end(until: int) -> int:
    end = whole_number("until", until)
    if end > LAST_ID:
        raise UsageError(f"until is a transaction id, at most {LAST_ID}")
    return max(end, -1)
