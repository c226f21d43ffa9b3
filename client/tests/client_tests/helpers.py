"""Small things the client's tests share."""

import asyncio
from collections.abc import Callable

from waltz_client import Transaction
from waltz_testkit.fake_cluster import FakeCluster


def settings_for(cluster: FakeCluster, **overrides: object) -> dict[str, object]:
    """Settings of a client of the fake cluster; keys with `_` for `.` inside the client's name."""
    return {
        "zookeeper.connectString": "memory:2181",
        "zookeeper.sessionTimeout": 10_000,
        "cluster.root": cluster.root,
        "client.ssl.enabled": False,
        **{f"client.{key}": value for key, value in overrides.items()},
    }


async def until(condition: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Wait until a condition holds; fails with its source line when it does not."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"still not true after {seconds} s") from None


class Application:
    """Callbacks that remember everything, and fail on demand."""

    def __init__(self, mark: int = -1) -> None:
        self.mark = mark
        self.marks_asked: list[int] = []
        self.applied: list[tuple[int, int]] = []
        self.errors: list[tuple[int, int, str]] = []
        self.fail: dict[tuple[int, int], int] = {}
        self.log: list[str] = []

    def client_high_water_mark(self, partition_id: int) -> int:
        self.marks_asked.append(partition_id)
        return self.mark

    async def apply_transaction(self, transaction: Transaction) -> None:
        key = (transaction.partition_id, transaction.transaction_id)
        if self.fail.get(key, 0):
            self.fail[key] -= 1
            raise ValueError(f"cannot apply {key}")
        self.log.append(f"apply {transaction.transaction_id}")
        self.applied.append(key)

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: Exception) -> None:
        self.errors.append((partition_id, transaction_id, str(error)))
