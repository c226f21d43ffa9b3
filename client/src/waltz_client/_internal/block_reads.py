"""What feeds and ranges share when they read blocks: opening one, and what is in it as the application sees
it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType

from waltz_client._internal.rpc.block_feed import BlockCutter, BlockFeed
from waltz_client._internal.rpc.client import RpcClient
from waltz_client._internal.stream.readers import Readers
from waltz_client.headers import KINDS, HeaderNamespace
from waltz_client.transaction import FeedTransaction
from waltz_protocol.frames.blocks import Block, parse_block
from waltz_protocol.messages.fields import MAX_RANGES

HeaderTest = Callable[[int], bool]

_HEADERS = 2**31
"""A header is a signed number of 32 bits."""
_MOST_WINDOW = 2**31 - 1
"""The credit of a feed of blocks has 32 bits for transactions."""


def open_blocks(
    rpc: RpcClient,
    readers: Readers,
    after: int | None,
    until: int | None,
    *,
    window_transactions: int,
    window_bytes: int,
    where: HeaderTest | None,
    on_ready: Callable[[], object],
    cut: BlockCutter = parse_block,
) -> BlockFeed:
    """A feed of blocks among the readers of a partition, not started yet."""
    feed = BlockFeed(
        rpc,
        readers.partition_id,
        after,
        until,
        window_transactions=min(window_transactions, _MOST_WINDOW),
        window_bytes=window_bytes,
        headers=ranges_of(where),
        on_ready=on_ready,
        on_covered=readers.covered,
    )
    feed.cut = cut
    readers.blocks.add(feed)
    return feed


def close_blocks(rpc: RpcClient, readers: Readers, feed: BlockFeed) -> None:
    """The reader has no use for it any longer. Idempotent."""
    readers.blocks.discard(feed)
    rpc.give_up(feed)


def ranges_of(where: HeaderTest | None) -> tuple[tuple[int, int], ...]:
    """The headers that a test lets through, as a server understands them: those of a namespace, and those of
    a frozen set whose `__contains__` is the test, unless they are too many ranges. None for any other test,
    which is asked about each transaction on arrival."""
    among = getattr(where, "__self__", None)
    if isinstance(among, frozenset) and where == among.__contains__:
        ranges = _ranges_of_numbers(among)
        return ranges if len(ranges) <= MAX_RANGES else ()
    if isinstance(where, MethodType) and where.__func__ is HeaderNamespace.owns:
        namespace: HeaderNamespace = where.__self__  # type: ignore[assignment]
        return ((namespace.header(0), namespace.header(KINDS - 1)),)
    return ()


def _ranges_of_numbers(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Of those that a header can be."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(number for number in numbers if -_HEADERS <= number < _HEADERS):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def transactions_of(
    block: Block, where: HeaderTest | None, wants_data: HeaderTest | None
) -> list[FeedTransaction]:
    """The transactions of a block that `where` lets through, without their data if `wants_data` says so."""
    found = list(map(FeedTransaction, block.fields(), block.payloads()))
    if where is not None:
        found = [one for one in found if where(one.header)]
    if wants_data is not None:
        for one in found:
            if not wants_data(one.header):
                one.data = None
    return found
