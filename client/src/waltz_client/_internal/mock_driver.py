"""A log for tests in place of a cluster, as the settings name it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Protocol, runtime_checkable

from waltz_client._internal.discovery import Discovery
from waltz_client._internal.link import Connector

MOCK_DRIVER = "client.mockDriver"


@runtime_checkable
class MockDriver(Discovery, Protocol):
    """A log for tests in place of a cluster (`waltz_client.testing.InProcessLog`), given in the settings as
    `client.mockDriver`: the object itself, so only a mapping can hold one."""

    def client_settings(self, settings: Mapping[str, object]) -> Mapping[str, object]:
        """The keys given, and those that only a cluster needs."""
        ...

    @property
    def random(self) -> Random:
        """Where a client's retry delays come from."""
        ...

    @property
    def connect(self) -> Connector:
        """In place of a TCP connection."""
        ...
