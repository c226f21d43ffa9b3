"""Which ends of a process the simulator takes for a fault of the product: those its entry point has no single
line for."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.cluster.role import Role
from tests.sim.kernel.loop import SimLoop
from waltz_cluster.errors import ConnectError, ConnectionLostError


class Ending(Role):
    """A process that ends with the error at once, the first time."""

    error: BaseException

    async def main(self, stop: asyncio.Event) -> None:
        """See the class."""
        if self.incarnation == 1:
            raise self.error
        await stop.wait()


def told(error: BaseException) -> list[str]:
    """What the simulator says of a process that ends with `error`."""
    said: list[str] = []
    loop = SimLoop("role")
    role = Ending(loop, "server-1", lambda name, text: said.append(f"{name} {text}"))
    role.error = error

    async def drive() -> None:
        role.start()
        await asyncio.sleep(5)
        assert role.incarnation == 2, "it is started again"
        role.kill()

    loop.run(drive())
    return said


@pytest.mark.parametrize(
    "error",
    [
        ConnectError("ZooKeeper gave no answer"),
        ExceptionGroup("its tasks", [ConnectError("ZooKeeper gave no answer")]),
    ],
    ids=["alone", "from a group of tasks"],
)
def test_an_end_that_is_said_in_one_line_is_foreseen(error: BaseException) -> None:
    assert told(error) == []


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLostError("get /waltz: not connected"),
        ExceptionGroup("its tasks", [ConnectError("away"), ValueError("a defect")]),
    ],
    ids=["a stack trace", "beside a defect"],
)
def test_an_end_with_a_stack_trace_is_a_fault(error: BaseException) -> None:
    assert told(error) == [f"server-1 ended with {type(error).__name__}: {error}"]
