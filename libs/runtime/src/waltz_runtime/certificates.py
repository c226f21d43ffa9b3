"""The certificates of a service while it runs: what its files hold is taken over within seconds, also while
nobody connects, so that the log names a broken file at once; and when the one in use expires is a metric."""

from __future__ import annotations

import asyncio
import ssl

from waltz_protocol.aio.following import FollowingContext
from waltz_runtime.metrics import MetricsRegistry

COMPARE_SECONDS = 10.0


async def follow(tls: ssl.SSLContext | None) -> None:
    """Compare the files with what is in use, until cancelled; at once done where there are none."""
    while isinstance(tls, FollowingContext):
        await asyncio.sleep(COMPARE_SECONDS)
        tls.refresh()


def publish_expiry(registry: MetricsRegistry, name: str, tls: ssl.SSLContext | None) -> None:
    """A gauge, `<name>-certificate-expiry-timestamp-seconds`: seconds since the epoch. None is published for
    a side without a certificate of its own, or with one that the service made at its start."""
    if isinstance(tls, FollowingContext) and tls.expires is not None:
        registry.gauge(f"{name}-certificate-expiry-timestamp-seconds", lambda: tls.expires)
