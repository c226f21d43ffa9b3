"""What the service is made of, and what it reports about its client."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import sqlalchemy as sa
from flask import Flask

from ledger.branch.app import create_app
from ledger.branch.desk import Desk
from ledger.branch.store import METADATA, apply
from ledger.events import HEADERS
from waltz_client import ClientClosedError, ClientObserver, Endpoint, WaltzClientError
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.opentelemetry import OpenTelemetryObserver
from waltz_client.sql import BlockingSqlApplier, SqlApplier

DRAIN_SECONDS = 10.0
"""How long a stop waits for appends that are on their way."""

_log = logging.getLogger(__name__)


class Outages(ClientObserver):
    """Reports partitions and servers that come and go, as they do."""

    def available(self, partition: int, server: Endpoint) -> None:
        """See ClientObserver."""
        _log.info("partition %d takes appends, at %s", partition, server)

    def unavailable(self, partition: int, reason: str) -> None:
        """See ClientObserver."""
        _log.warning("partition %d takes no appends: %s", partition, reason)

    def disconnected(self, server: Endpoint, reason: str) -> None:
        """See ClientObserver."""
        _log.warning("the connection to %s ended: %s", server, reason)


@contextlib.contextmanager
def service(
    client_settings: Path | Mapping[str, object],
    engine: sa.Engine,
    telemetry: OpenTelemetryObserver,
    deadline_seconds: float = 15.0,
) -> Iterator[Flask]:
    """Follow the log in a thread while inside; the application that answers."""
    METADATA.create_all(engine)
    with BlockingWaltzClient.connect(client_settings, observers=[telemetry, Outages()]) as client:
        with BlockingSqlApplier(client, SqlApplier(engine, apply, where=HEADERS.owns)) as applier:
            applier.create_tables()
            following = threading.Thread(target=_follow, args=[applier], name="follow")
            following.start()
            try:
                yield create_app(Desk(client, applier, engine, deadline_seconds), applier)
            finally:
                applier.close()
                following.join()
        client.close(drain_seconds=DRAIN_SECONDS)


def _follow(applier: BlockingSqlApplier) -> None:
    try:
        applier.run()
    except ClientClosedError:
        return
    except WaltzClientError:
        _log.exception("the log is no longer followed")
