"""One API server for all tests of this folder, with the shipped definitions and role; skipped in one line
where there is none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
import structlog

from operator_tests.apiserver.control_plane import ControlPlane, control_plane, missing
from operator_tests.apiserver.installed import Administrator, install, operator_token
from operator_tests.apiserver.loop import ClusterLoop
from operator_tests.apiserver.world import Journal, World
from waltz_operator.kube.client import Kube, KubeClient

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Plane:
    """A running API server and the token of the operator's ServiceAccount."""

    control: ControlPlane
    token: str
    directory: Path

    def run(
        self,
        scenario: Callable[[World], Awaitable[None]],
        journal: Journal | None = None,
        through: Callable[[Kube], Kube] = lambda kube: kube,
    ) -> World:
        """Run a scenario in a namespace of its own, on a loop in which pods have names. `through`: what
        lies between the operator and its client."""
        number = next(_numbers)

        async def main() -> World:
            admin = Administrator(self.control.configuration())
            operator = KubeClient(self.control.configuration(self.token))
            directory = self.directory / f"world-{number}"
            world = World(admin, through(operator), f"test-{number}", directory, journal or Journal())
            try:
                await world.open()
                await scenario(world)
                return world
            except BaseException as error:
                error.add_note(await world.story())
                raise
            finally:
                await world.close()
                await admin.close()
                await operator.close()

        with asyncio.Runner(loop_factory=ClusterLoop) as runner:
            return runner.run(main())


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("apiserver")
    with control_plane(directory) as control:

        async def prepare() -> str:
            admin = Administrator(control.configuration())
            try:
                await install(admin)
                return await operator_token(admin)
            finally:
                await admin.close()

        with asyncio.Runner() as runner:
            token = runner.run(prepare())
        yield Plane(control, token, directory)


@pytest.fixture(autouse=True)
def short_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that leaves waits up to a second until its partitions have been taken over, which it learns
    late when nothing is appended; and here nothing is appended then."""
    monkeypatch.setattr("waltz_server.server.DRAIN_SECONDS", 0.05)


@pytest.fixture(autouse=True)
def quiet_services() -> Iterator[None]:
    """Servers and storage nodes talk a lot; what they say is not looked at here."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)
