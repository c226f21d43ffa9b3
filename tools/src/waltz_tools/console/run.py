"""Starts a console and serves it until it is cancelled."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from waltz_client import WaltzClient
from waltz_cluster import zk_client
from waltz_cluster.config.settings import CliSettings
from waltz_protocol.aio.following import FollowingContext
from waltz_runtime.http_guard import HttpPort
from waltz_tools.console.app import Console
from waltz_tools.console.collector import Collector
from waltz_tools.console.records import RecordReader
from waltz_tools.console.safety import Sessions
from waltz_tools.console.settings import ConsoleSettings
from waltz_tools.console.source import ClusterSource
from waltz_tools.errors import ToolError

_peers = logging.getLogger(f"{__name__}.peers")
_peers.setLevel(
    logging.ERROR
)  # browsers keep spare connections: that one of them is cut is nothing to report


@asynccontextmanager
async def serving(config: Path, settings: ConsoleSettings) -> AsyncIterator[ConsoleSettings]:
    """A console while the block runs; the settings with the real port. ToolError when it cannot listen, and
    what is wrong with the configuration file. ZooKeeper need not be there."""
    cli = CliSettings.from_file(config)
    tls = cli.tls_settings("ssl")
    source = ClusterSource(
        lambda: zk_client.connect(cli, gives_up=True),
        cli.cluster_root,
        tls,
        question_seconds=settings.question_seconds,
    )
    context = _tls_context(settings)
    loop = asyncio.get_running_loop()
    collector = Collector(
        source.observe,
        interval_seconds=settings.interval_seconds,
        clock=loop.time,
        wall_clock=time.time,
        work_clock=time.process_time,
        report=source.reports,
    )
    records = RecordReader(lambda: WaltzClient.connect(config))
    listener = _bind(settings.host, settings.port)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(collector.run()), group.create_task(records.run())]
            try:
                bound = replace(settings, port=listener.getsockname()[1])
                async with _listening(bound, collector, records, listener, context):
                    yield bound
            finally:
                for task in tasks:
                    task.cancel()
    finally:
        listener.close()
        await source.close()


@asynccontextmanager
async def _listening(
    settings: ConsoleSettings,
    collector: Collector,
    records: RecordReader,
    listener: socket.socket,
    context: ssl.SSLContext | None,
) -> AsyncIterator[None]:
    console = Console(settings, collector, records, Sessions(settings.token, time.monotonic))
    http = console.http = HttpPort(console.application(), _peers, handler_cancellation=True)
    await http.start(sock=listener, ssl=context)
    try:
        yield
    finally:
        await http.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as failure:
        if failure.errno == errno.EADDRINUSE:
            raise ToolError(f"port {port} of {host} is already in use: pass another --port") from None
        raise ToolError(f"cannot listen on {host}:{port}: {failure.strerror or failure}") from None
    except UnicodeError:  # a part of it is empty, or too long
        raise ToolError(f"cannot listen on {host}:{port}: it is no host name") from None


def _tls_context(settings: ConsoleSettings) -> ssl.SSLContext | None:
    """It follows its files: a certificate that is renewed is shown to the next connection."""
    certificate, key = settings.certificate, settings.key
    if certificate is None or key is None:
        return None

    def fill(context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(certificate, key, "")  # without a password OpenSSL asks for it
        except ssl.SSLError:
            if b"ENCRYPTED" not in Path(key).read_bytes():
                raise
            raise ToolError(f"{key} has a password: give the console a key without one") from None

    try:
        return FollowingContext(ssl.PROTOCOL_TLS_SERVER, fill, lambda: (Path(certificate), Path(key)))
    except (OSError, ssl.SSLError) as failure:
        raise ToolError(
            f"the certificate {settings.certificate} with the key {settings.key} cannot be used: {failure}"
        ) from None


def link(settings: ConsoleSettings, *, with_token: bool) -> str:
    """The address for a browser. The token is behind the #, which browsers send to nobody."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{settings.scheme}://{host}:{settings.port}/"
    return f"{address}#token={settings.token}" if with_token else address
