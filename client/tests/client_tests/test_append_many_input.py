"""What the iterable or the function that `append_many` was given raises is raised, a TimeoutError too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from waltz_client import Append, AppendError, Committed
from waltz_client.testing import InProcessLog


def rows(count: int) -> Iterator[Append]:
    for number in range(count):
        yield Append(0, b"%d" % number)
    raise TimeoutError("upstream")


@pytest.mark.parametrize("deadline_seconds", [None, 60.0])
@pytest.mark.parametrize("count", [0, 3, 300])
async def test_a_timeout_of_the_iterable_is_raised(count: int, deadline_seconds: float | None) -> None:
    async with InProcessLog().client() as client:
        await client.writable(0)
        with pytest.raises(TimeoutError, match="upstream"):
            await client.append_many(rows(count), deadline_seconds=deadline_seconds)


async def test_a_timeout_of_on_result_is_raised() -> None:
    """Of an append that was not sent; one that was is in the log whatever the function raises."""

    def fail(_: Append, result: Committed | AppendError) -> None:
        raise TimeoutError("downstream")

    async with InProcessLog().client() as client:
        await client.writable(0)
        with pytest.raises(TimeoutError, match="downstream"):
            await client.append_many([Append(7, b"no such partition")], on_result=fail)
