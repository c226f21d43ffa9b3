"""The HTTP port: everything a web server gets to see on the internet within an hour."""

import asyncio

from tests.integration.hostile.wires import Target, Wire, abort_all, crowd

PATHS = ("/ping", "/buildinfo", "/health", "/metrics")


async def bad_requests(target: Target) -> None:
    """Wrong methods, versions, lengths, encodings, targets, and bytes that are no HTTP; each is refused or
    cut."""
    for raw in _bad_requests():
        made = await Wire.open(target, None)
        try:
            await made.send(raw)
            made.writer.write_eof()
            await made.is_cut()
        except OSError:
            pass
        made.abort()


def _bad_requests() -> list[bytes]:
    wrong_methods = [
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        for path in PATHS
        for method in ("POST", "PUT", "DELETE", "TRACE", "CONNECT", "PATCH", "OPTIONS", "BREW", "get")
    ]
    head = b"GET /ping HTTP/1.1\r\nHost: x\r\n"
    return [
        *wrong_methods,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\x00" * 5000,
        b"GET\r\n\r\n",
        b"GET /ping HTTP/9.9\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /ping HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /%00%ff%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET http://[::1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /metrics?pretty=" + b"%ff" * 500 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        head + b"Accept: \xff\xfe\x00\r\nConnection: close\r\n\r\n",
        head + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n",
        head + b"Expect: nonsense\r\nConnection: close\r\n\r\n",
        head + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        head + b"Content-Encoding: gzip\r\nContent-Length: 10\r\nConnection: close\r\n\r\n0123456789",
        head + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        head + b"X: y\r\n" * 50_000 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        head + b"X: y\r\n a\r\n\tb\r\n\r\n",
    ]


async def slow_headers(target: Target) -> None:
    """500 connections that send headers without end, a few bytes at a time."""
    wires = await crowd(500, lambda: Wire.open(target, None))
    until = asyncio.get_running_loop().time() + target.seconds
    for made in wires:
        made.writer.write(b"GET /ping HTTP/1.1\r\n")
    while asyncio.get_running_loop().time() < until:
        for made in wires:
            made.writer.write(b"X-a: b\r\n")
        await asyncio.sleep(0.25)
    abort_all(wires)


async def huge_bodies(target: Target) -> None:
    """Ten requests with bodies of gigabytes, plain and chunked, to every path."""
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"

    async def one(number: int) -> None:
        path = PATHS[number % len(PATHS)]
        length = "Transfer-Encoding: chunked" if number % 2 else "Content-Length: 8000000000"
        method = "POST" if number % 3 else "GET"
        try:
            made = await Wire.open(target, None)
            await made.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
            async with asyncio.timeout(target.seconds):
                while True:
                    await made.send(chunk)
        except (OSError, TimeoutError):
            pass
        made.abort()

    await asyncio.gather(*(one(number) for number in range(10)))


async def deaf_scraper(target: Target) -> None:
    """Requests for all metrics, pipelined, by peers that read no answer."""

    async def one() -> None:
        made = await Wire.open(target, None, 4096)
        made.writer.transport.pause_reading()  # type: ignore[attr-defined]
        try:
            async with asyncio.timeout(target.seconds):
                while True:
                    await made.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        except (OSError, TimeoutError):
            pass
        made.abort()

    await asyncio.gather(*(one() for _ in range(10)))
