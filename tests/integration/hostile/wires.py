"""What an attacker holds: the address of a port, and connections to it that keep no rule unless asked to."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from waltz_protocol.codec import ADMIN, STORAGE
from waltz_protocol.frame import Magic
from waltz_protocol.handshake import encode_hello
from waltz_protocol.messages import admin, storage

_HEAD = struct.Struct(">bhi")
MAGICS = {"client": Magic.CLIENT, "storage": Magic.STORAGE, "admin": Magic.ADMIN}
VERSIONS = {"client": (0, 1, 2, 3, 4), "storage": (0, 1), "admin": (0,)}
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Target:
    """A port under attack. `kind` is client, storage, admin or http; `seconds` is how long an attack
    continues."""

    kind: str
    port: int
    tls: bool
    cluster_key: str
    partitions: int
    seconds: float = 1.0
    key_file: str | None = None
    """Key and certificate (PEM) that the attacker shows; none = no certificate."""
    source: str = "127.0.66.1"
    """The attacker's own address, so that log lines can be distinguished."""

    @property
    def magic(self) -> int:
        return MAGICS[self.kind]

    @property
    def version(self) -> int:
        return VERSIONS[self.kind][-1]

    def frame(self, body: bytes, length: int | None = None) -> bytes:
        """A frame of this port's protocol, if wanted with a false length."""
        return _HEAD.pack(self.magic, self.version, len(body) if length is None else length) + body

    def opening(self, cluster_key: UUID | None = None) -> bytes:
        """The Open request, with the right key unless another one is given."""
        key = cluster_key or UUID(self.cluster_key)
        if self.kind == "admin":
            return ADMIN.encode(admin.OpenRequest(-1, key, self.partitions), self.version)
        return STORAGE.encode(storage.OpenRequest(-1, -1, -1, key, self.partitions), self.version)


def careless_tls(target: Target) -> ssl.SSLContext | None:
    """TLS that trusts everybody."""
    if not target.tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if target.key_file is not None:
        context.load_cert_chain(target.key_file)
    return context


class Wire:
    """One connection. Nothing is checked; errors of a cut connection are the attacked side's good right."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, target: Target, tls: ssl.SSLContext | None, receive_bytes: int = 0) -> "Wire":
        """Connect. `receive_bytes` makes the kernel's receive buffer small, for those who do not read."""
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            sock.bind((target.source, 0))
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", target.port))
            name = "127.0.0.1" if tls is not None else None
            limit = receive_bytes or 65536
            return cls(*await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name, limit=limit))
        except BaseException:
            sock.close()
            raise

    async def greet(self, target: Target, opened: bool = False) -> None:
        """Exchange Hellos; with `opened`, also a successful Open."""
        self.writer.write(encode_hello(VERSIONS[target.kind], "hostile"))
        await self.frame()
        if opened and target.kind != "client":
            self.writer.write(target.opening())
            await self.frame()

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()
        # Under TLS drain() needs no turn of the loop when the connection was just reset, of which only a turn
        # of the loop would tell (Python 3.11).
        await asyncio.sleep(0)

    async def frame(self, timeout_seconds: float = _PATIENCE_SECONDS) -> bytes:
        """The body of the next frame."""
        async with asyncio.timeout(timeout_seconds):
            head = await self.reader.readexactly(_HEAD.size)
            return await self.reader.readexactly(_HEAD.unpack(head)[2])

    async def is_cut(self) -> bool:
        """Read on until the attacked side ends the connection; False when it does not."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def abort(self) -> None:
        self.writer.transport.abort()


@asynccontextmanager
async def wire(target: Target, *, greeted: bool = True, opened: bool = False) -> AsyncIterator[Wire]:
    """A connection with TLS as the target wants it, cut at the end."""
    made = await Wire.open(target, careless_tls(target))
    try:
        if greeted and target.kind in MAGICS:
            await made.greet(target, opened)
        yield made
    finally:
        made.abort()


async def crowd(count: int, connect: Callable[[], Awaitable[Wire]], at_a_time: int = 50) -> list[Wire]:
    """So many connections; those the attacked side refuses are missing."""
    wires: list[Wire] = []

    async def one() -> None:
        try:
            wires.append(await connect())
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass

    for start in range(0, count, at_a_time):
        await asyncio.gather(*(one() for _ in range(min(at_a_time, count - start))))
    return wires


def abort_all(wires: Iterable[Wire]) -> None:
    for made in wires:
        made.abort()
