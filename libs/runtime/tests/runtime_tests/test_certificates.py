"""What a service does with contexts that follow their files."""

import asyncio
import ssl

import pytest

from waltz_protocol.aio.following import FollowingContext
from waltz_runtime import certificates
from waltz_runtime.certificates import follow, publish_expiry
from waltz_runtime.metrics import MetricsRegistry


def _context(expires: float | None) -> FollowingContext:
    return FollowingContext(ssl.PROTOCOL_TLS_SERVER, lambda _: expires, lambda: ())


def test_expiry_is_a_metric_where_there_is_one() -> None:
    registry = MetricsRegistry()
    context = _context(1_800_000_000.0)
    for name, tls in (("own", context), ("none", None), ("made", _context(None))):
        publish_expiry(registry, f"waltz-server.{name}", tls)
    assert list(registry.metrics) == ["waltz-server.own-certificate-expiry-timestamp-seconds"]
    context.expires = 1_900_000_000.0
    assert "waltz_server_own_certificate_expiry_timestamp_seconds 1.9e+09" in registry.to_prometheus()


async def test_files_are_compared_while_nobody_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "COMPARE_SECONDS", 0.001)
    context, compared = _context(None), asyncio.Event()
    monkeypatch.setattr(context, "refresh", compared.set)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow(context))
        async with asyncio.timeout(10):
            await compared.wait()
        task.cancel()
    await follow(None)
